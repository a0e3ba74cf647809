/** What a call is aimed at: its method, origin and shape. */

export interface Target {
  readonly method: string;
  readonly url: string;
  /** Scheme, host and port, as written but in lower case; "" for a relative URL. */
  readonly origin: string;
  /** The method and the path, with `*` for the segments that look like ids. */
  readonly shape: string;
}

// `URL` is incomplete in React Native, and slow elsewhere. Like it, this takes `\\` for `/`, and any number of them.
const parts = /^\s*(?:(https?:)[/\\]*(?:[^/?#\\]*@)?([^/?#\\]*))?([^?#]*)/i;

/** Segments that look like ids: digits, or at least 8 characters with a digit among them. */
const idSegments = /(^|\/)(?:\d+|(?=[^/]{8})[^/]*\d[^/]*)(?![^/])/g;

/** Describes a request. An invalid URL is described too; `fetch` itself will reject it. */
export function describeTarget(method: string, url: string): Target {
  const [, scheme = "", host = "", path] = parts.exec(url)!;
  const shape = `${method} ${path!.replace(idSegments, "$1*") || "/"}`;
  return { method, url, origin: scheme && `${scheme}//${host}`.toLowerCase(), shape };
}
