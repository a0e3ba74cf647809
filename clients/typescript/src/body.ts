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
  /** The body for another attempt, if `kind` allows one. Absent if the request itself can be sent again. */
  again?(): Body | Promise<Body>;
  /** Ends a copy that is still being made. */
  close?(): void;
}

/** What each part of a form adds for its boundary and headers, roughly. */
const formPartBytes = 160;

const none: Replay = { kind: () => "none" };
const once: Replay = { kind: () => "stream" };

/** Prepares a body to be sent again. Nothing is read or copied if it is longer than `replayMax`. */
export function replayOf(body: Body | BodyFactory | null | undefined, replayMax: number): Replay {
  if (body === null || body === undefined) return none;
  if (typeof body === "function") return { kind: () => "factory", again: body };
  if (typeof body === "string") return { kind: () => ({ bytes: utf8Length(body) }), again: () => body };
  if (is(body, "Blob") || is(body, "File")) return kept((body as Blob).size, () => body);
  if (is(body, "ArrayBuffer")) return replayOf(new Uint8Array(body as ArrayBuffer), replayMax);
  if (ArrayBuffer.isView(body)) return copiedBytes(body, replayMax);
  if (is(body, "URLSearchParams")) return copiedParams(body as URLSearchParams);
  if (is(body, "FormData")) return copiedForm(body as FormData);
  return once;
}

/** Copies the body of a `Request` while it is being sent. Call it before the send. */
export function replayOfRequest(request: Request, replayMax: number): Replay {
  if (request.body === null || request.bodyUsed) return none;
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  let complete = false;
  const reader = request.clone().body!.getReader();
  const close = () => void reader.cancel().catch(() => {});
  const copy = async () => {
    while (bytes <= replayMax) {
      const { done, value } = await reader.read();
      if (done) {
        complete = true;
        return;
      }
      chunks.push(value);
      bytes += value.byteLength;
    }
    chunks.length = 0;
    close();
  };
  copy().catch(() => {});
  return {
    kind: () => (complete ? { bytes } : "stream"),
    again: () => concatenate(chunks, bytes),
    close,
  };
}

export function isStream(body: unknown): boolean {
  return typeof body === "object" && body !== null && "getReader" in body;
}

function kept(bytes: number, again: () => Body): Replay {
  return { kind: () => ({ bytes }), again };
}

function copiedBytes(view: ArrayBufferView, replayMax: number): Replay {
  const bytes = view.byteLength;
  if (bytes > replayMax) return kept(bytes, () => view as unknown as Body);
  const copy = new Uint8Array(view.buffer, view.byteOffset, bytes).slice();
  return kept(bytes, () => copy);
}

function copiedParams(params: URLSearchParams): Replay {
  const text = params.toString();
  return kept(text.length, () => {
    const copy = new URLSearchParams(text);
    return copy.toString() === text ? copy : params; // Older React Native cannot parse.
  });
}

function copiedForm(form: FormData): Replay {
  // React Native's forms hold names of files, and cannot be listed; sending one again reads the files again.
  if (typeof form.forEach !== "function") return { kind: () => "factory", again: () => form };
  const copy = new FormData();
  let bytes = 0;
  form.forEach((value, name) => {
    copy.append(name, value as Blob);
    bytes += formPartBytes + utf8Length(name) + (typeof value === "string" ? utf8Length(value) : value.size);
  });
  return kept(bytes, () => copy);
}

/** True for an instance of a platform class, also of another realm's. */
function is(body: object, name: string): boolean {
  const type = (globalThis as Record<string, unknown>)[name];
  if (typeof type === "function" && body instanceof type) return true;
  return Object.prototype.toString.call(body) === `[object ${name}]`;
}

/** The length in UTF-8, without a `TextEncoder`, which not every platform has. */
function utf8Length(text: string): number {
  let bytes = 0;
  for (const character of text) {
    const code = character.codePointAt(0)!;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}

function concatenate(chunks: Uint8Array[], bytes: number): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all;
}
