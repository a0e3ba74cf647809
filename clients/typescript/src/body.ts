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
  kind: BodyKind;
  /** The body for another attempt, if `kind` allows one and there is a body. */
  again?: Body | BodyFactory;
  /** Ends a copy that is still being made. */
  close?(): void;
}

/** What an entry adds to a form for its boundary and headers, roughly. */
const formOverheadBytes = 160;

/** Prepares a body to be sent again. Nothing is copied if it is longer than `replayMax`. */
export function replayOf(body: Body | BodyFactory | null | undefined, replayMax: number): Replay {
  if (body == null) return { kind: "none" };
  if (typeof body === "function") return { kind: "factory", again: body };
  let again = body;
  let bytes = 0;
  if (typeof body !== "object") {
    again = String(body); // `fetch` takes numbers too.
    // A character has at most 3 bytes, so only long strings are measured. Not every platform has `TextEncoder`.
    if (again.length > replayMax / 3) bytes = new Blob([again]).size;
  } else if ("byteLength" in body) {
    const { buffer, byteOffset, byteLength } = body as Uint8Array<ArrayBuffer>;
    bytes = byteLength;
    // A buffer has no buffer, and no offset.
    if (bytes <= replayMax) again = new Uint8Array(buffer ?? body, byteOffset, bytes).slice();
  } else if ("slice" in body) {
    bytes = body.size;
  } else if ("entries" in body) {
    const copy = new (body.constructor as typeof FormData)();
    body.forEach((value: string | Blob, name: string) => {
      copy.append(name, value as Blob);
      bytes += new Blob([name, value]).size + formOverheadBytes;
    });
    again = copy;
    if ("sort" in body) bytes = String(body).length;
  } else if (!("getParts" in body)) {
    // Only React Native's forms have parts: names of files, which are read again. The forms of npm are streams.
    return { kind: "stream" };
  }
  return { kind: { bytes }, again };
}

/** Copies the body of a `Request` while it is being sent. Call it before the send. */
export function replayOfRequest(request: Request, replayMax: number): Replay {
  const replay: Replay = {
    kind: "stream",
    close: readBody(request.clone().body!, replayMax, (chunks) => {
      replay.kind = "factory";
      replay.again = new Blob(chunks);
    }),
  };
  return replay;
}

/**
 * Reads a body, and gives its chunks to `onEnd`; or cancels it as soon as it is longer than `bytesMax`. Returns a
 * function that cancels it earlier.
 */
export function readBody(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  bytesMax: number,
  onEnd?: (chunks: Uint8Array<ArrayBuffer>[]) => void,
): () => void {
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  const read = async () => {
    const chunks = [];
    let bytes = 0;
    while (bytes <= bytesMax) {
      const { done, value } = await reader.read();
      if (done) return onEnd?.(chunks);
      chunks.push(value);
      bytes += value.byteLength;
    }
    cancel();
  };
  read().catch(() => {}); // A body that cannot be read has no copy.
  return cancel;
}
