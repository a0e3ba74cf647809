/**
 * Bodies: what can be sent again, and the same bytes each time.
 *
 * Strings and blobs cannot change. Buffers, forms and search parameters can, so they are copied before the first send;
 * if they are longer than `replayMax` they are sent once instead. A stream is sent once. The body of a `Request` is a
 * stream too, but nearly always a short one: it is copied while the first attempt sends it, and the copy is dropped as
 * soon as it is longer than `replayMax`.
 */
import type { BodyKind } from "./decide.js";

export type Body = NonNullable<RequestInit["body"]>;
/** Makes the body for one attempt. */
export type BodyFactory = () => Body | Promise<Body>;

export interface Replay {
  /** What is known of the body now. */
  kind(): BodyKind;
  /** The body for another attempt, if `kind` allows one; undefined if there is none. */
  again(): Body | undefined | Promise<Body>;
  /** Ends a copy that is still being made. */
  close?(): void;
}

/** What each part of a form adds for its boundary and headers, roughly. */
const formPartBytes = 160;

/** Prepares a body to be sent again. Nothing is copied if it is longer than `replayMax`. */
export function replayOf(body: Body | BodyFactory | null | undefined, replayMax: number): Replay {
  if (body === null || body === undefined) return { kind: () => "none", again: () => undefined };
  if (typeof body === "function") return { kind: () => "factory", again: body };
  // Every platform has `Blob` to measure UTF-8 with, but not every one has `TextEncoder`.
  if (typeof body === "string") return { kind: () => ({ bytes: new Blob([body]).size }), again: () => body };
  if ("byteLength" in body) return copiedBytes(body, replayMax);
  if ("slice" in body) return kept(body.size, body);
  // React Native's forms hold names of files, and cannot be listed; sending one again reads the files again.
  if ("append" in body) return "entries" in body ? copiedPairs(body) : kept(0, body);
  return { kind: () => "stream", again: () => undefined };
}

/** Copies the body of a `Request` while it is being sent. Call it before the send. */
export function replayOfRequest(request: Request, replayMax: number): Replay {
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let bytes = 0;
  let complete = false;
  const copied = readBody(request.clone().body!, (chunk) => {
    chunks.push(chunk);
    bytes += chunk.byteLength;
    return bytes <= replayMax;
  });
  copied.complete.then((isComplete) => {
    complete = isComplete;
    if (!isComplete) chunks.length = 0;
  });
  return { kind: () => (complete ? { bytes } : "stream"), again: () => new Blob(chunks), close: copied.cancel };
}

/**
 * Reads a body for as long as `take` wants more. `complete` tells whether it was read to its end; it never rejects.
 * A body that is not wanted any more is cancelled.
 */
export function readBody(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  take: (chunk: Uint8Array<ArrayBuffer>) => boolean,
) {
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  const read = async (): Promise<boolean> => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      if (!take(value)) break;
    }
    cancel();
    return false;
  };
  return { cancel, complete: read().catch(() => false) };
}

function kept(bytes: number, body: Body): Replay {
  return { kind: () => ({ bytes }), again: () => body };
}

function copiedBytes(body: ArrayBuffer | ArrayBufferView<ArrayBuffer>, replayMax: number): Replay {
  const bytes = body.byteLength;
  if (bytes > replayMax) return kept(bytes, body);
  const view = "buffer" in body ? new Uint8Array(body.buffer, body.byteOffset, bytes) : new Uint8Array(body);
  return kept(bytes, view.slice());
}

/** Copies a form or search parameters. */
function copiedPairs(pairs: FormData | URLSearchParams): Replay {
  const copy = new (pairs.constructor as typeof FormData)();
  let formBytes = 0;
  pairs.forEach((value: string | Blob, name: string) => {
    copy.append(name, value as Blob);
    formBytes += formPartBytes + new Blob([name, value]).size;
  });
  const text = String(pairs);
  return kept(text.startsWith("[object") ? formBytes : text.length, copy);
}
