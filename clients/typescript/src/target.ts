/** What a call is aimed at: its method, origin and shape. */

export interface Target {
  readonly method: string;
  readonly url: string;
  /** Scheme, host and port; "" for a relative URL. */
  readonly origin: string;
  /** The method and the path, with `*` for the segments that look like ids. */
  readonly shape: string;
}

// `URL` is incomplete in React Native, and slow elsewhere.
const parts = /^(?:(https?:)[/\\]{2}(?:[^/?#\\]*@)?([^/?#\\]*))?([^?#]*)/i;

/** Describes a request. An invalid URL is described too; `fetch` itself will reject it. */
export function describeTarget(method: string, url: string): Target {
  const [, scheme = "", host = "", path] = parts.exec(url)!;
  const origin = `${scheme}//${host}`.toLowerCase().replace(/^(http:.*):80$|^(https:.*):443$/, "$1$2");
  const segments = (path || "/").split(/[/\\]/);
  return { method, url, origin: scheme && origin, shape: `${method} ${segments.map(wildcard).join("/")}` };
}

/** `*` for a segment of digits, and for one of at least 8 characters that contains a digit. */
function wildcard(segment: string): string {
  return /^\d+$/.test(segment) || (segment.length >= 8 && /\d/.test(segment)) ? "*" : segment;
}
