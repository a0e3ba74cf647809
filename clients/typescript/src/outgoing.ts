/** The outgoing request: what each attempt of a call hands to `fetch`. */
import { type Body, type BodyFactory, type Replay, replayOf, replayOfRequest } from "./body.js";
import type { Repeat, RequestFacts } from "./decide.js";
import { describeTarget, type Target } from "./target.js";

export type FetchInput = string | URL | Request;

export interface RetryInit extends Omit<RequestInit, "body"> {
  /** As for `fetch`; or a function that makes the body, called for each attempt. */
  body?: Body | BodyFactory | null;
  /**
   * Whether the request may be repeated. `auto` (default): by its method; `safe`: it may be processed twice;
   * `unprocessed`: only if it certainly was not processed; `never`.
   */
  retry?: Repeat;
  /** Needed for streams in Node and Chromium; added if it is missing. */
  duplex?: "half";
}

export interface Outgoing {
  readonly target: Target;
  readonly signal: AbortSignal | null | undefined;
  readonly replay: Replay;
  /** What `decide` asks for after a failed attempt. */
  facts(): RequestFacts;
  /** The arguments of `fetch` for an attempt, with the body that is sent again, if there is one. */
  next(attempt: number, body: Body | null | undefined): [FetchInput, RequestInit];
}

/** Prepares a request. Everything that the caller could change before it is sent is copied here. */
export function prepareRequest(
  input: FetchInput,
  given: RetryInit | null | undefined,
  { replayMax, attemptHeader }: { replayMax: number; attemptHeader: boolean },
): Outgoing {
  const own: Partial<Request> = Object(input).url ? (input as Request) : {};
  // With any init, `fetch` forgets the referrer of a Request and its policy, and would send the page's URL.
  const { referrer, referrerPolicy } = own as Request;
  const init: RetryInit = own.url ? { referrer, referrerPolicy } : {};
  // Not `{ ...given }`: a Request has its members from its prototype, and `fetch` takes one for its options.
  for (const name in given) init[name as "method"] = given[name as "method"]!;
  const url = own.url ?? String(input);
  const method = (init.method ?? own.method ?? "GET").toUpperCase();
  const headers = new Headers(init.headers ?? own.headers);
  const sendsOwnBody = own.body && init.body == null;
  const replay = sendsOwnBody ? replayOfRequest(input as Request, replayMax) : replayOf(init.body, replayMax);

  return {
    target: describeTarget(method, url),
    signal: init.signal === undefined ? own.signal : init.signal,
    replay,
    facts: () => ({
      method,
      repeat: init.retry,
      idempotencyKey: !!headers.get("idempotency-key"),
      body: replay.kind,
    }),
    next(attempt, body) {
      const { retry: _, ...next } = { ...init, headers };
      if (body !== undefined) next.body = body;
      if ((next.body as ReadableStream | undefined)?.getReader) next.duplex ??= "half";
      if (attempt > 1 && attemptHeader) {
        next.headers = new Headers(headers);
        next.headers.set("ratewright-attempt", String(attempt));
      }
      // Where a Request shows no body (Firefox, React Native), it can only be sent again as a clone.
      return [(own.body === undefined && own.clone?.()) || (own.url ? input : url), next as RequestInit];
    },
  };
}
