// Compiled, never run: what callers may write, and what the compiler must reject.
import {
  Budget,
  DeadlineError,
  decide,
  defaultPolicy,
  Gate,
  Lane,
  type RetryEvent,
  type RetryFetch,
  type RetryOptions,
  type Summary,
  type Why,
  withRetry,
} from "@ratewright/fetch";
import { FakeClock } from "@ratewright/fetch/testing";

const api: RetryFetch = withRetry(fetch, { attempts: 3, gate: new Gate(), budget: new Budget({ retriesMax: 10 }) });
withRetry();
withRetry({ deadlineMs: 10_000, gate: false, budget: false });
withRetry(undefined, { partition: ({ origin }) => origin, clock: new FakeClock(), random: Math.random });

// A wrapper can stand wherever a fetch is expected.
const plain: typeof fetch = api;
const nested = withRetry(api);

export async function calls(signal: AbortSignal): Promise<Summary | undefined> {
  await api("https://api.example/");
  await api(new URL("https://api.example/"), { signal, headers: { a: "b" } });
  await api(new Request("https://api.example/"), { retry: "unprocessed" });
  await api("/", { method: "PUT", body: () => "made for each attempt" });
  await api("/", { method: "PUT", body: async () => new Blob(["x"]).stream(), duplex: "half" });
  await api("/", null);
  await plain("/");
  const response: Response = await nested("/", { body: null });
  return api.summary(response);
}

export function report(event: RetryEvent): string {
  switch (event.type) {
    case "sending":
      return `${event.method} ${event.url} ${event.attempts}`;
    case "queued":
      return `${event.waiting}`;
    case "waiting":
      return `${event.cause} ${event.waitMs} ${event.status ?? "no response"}`;
    case "returned":
      return `${event.why} ${event.status} ${event.retryAt?.toISOString()}`;
    case "failed":
      return `${event.why} ${String(event.error)}`;
  }
}

export function show(error: unknown): Date | undefined {
  return error instanceof DeadlineError ? error.retryAt : undefined;
}

const decision = decide(
  defaultPolicy,
  {
    request: { method: "GET", body: { bytes: 7 } },
    state: { attempts: 1, budget: 50_000 },
    seen: { status: 429, headers: [["Retry-After", "1"]] },
    now: { elapsedMs: 0, wallMs: 0 },
  },
  0.5,
);
export const why: Why | undefined = decision.action === "return" ? decision.why : undefined;
new Lane().throttled(0, { sentAt: 0, hint: 0, retryAt: 0 });

// @ts-expect-error attempts is a number
withRetry(fetch, { attempts: "3" });
// @ts-expect-error there is no such option
withRetry(fetch, { retries: 3 });
// @ts-expect-error there is no such way to repeat
api("/", { retry: "always" });
// @ts-expect-error a factory makes a body, not a number
api("/", { body: () => 7 });
// @ts-expect-error a retry has no reason to return
decision.action === "retry" && decision.why;
const options: RetryOptions = {};
// @ts-expect-error options cannot be changed later
options.attempts = 2;

// @ts-expect-error internals are not exported
export type { Settings } from "@ratewright/fetch/dist/call.js";
