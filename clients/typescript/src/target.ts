/** What a call is aimed at: its method, origin and shape. */

export interface Target {
  readonly method: string;
  readonly url: string;
  /** Scheme, host and port, as written but in lower case; "" for a relative URL. */
  readonly origin: string;
  /** The method and the path, with `*` for the segments that look like ids. */
  readonly shape: string;
}

// `URL` is incomplete in React Native, and slow elsewhere.
const parts = /^(?:(https?:\/\/)(?:[^/?#]*@)?([^/?#]*))?([^?#]*)/i;

/** Describes a request. An invalid URL is described too; `fetch` itself will reject it. */
export function describeTarget(method: string, url: string): Target {
  const [, scheme = "", host = "", path] = parts.exec(url)!;
  return { method, url, origin: (scheme + host).toLowerCase(), shape: `${method} ${shapeOf(path || "/")}` };
}

/** Replaces segments of digits, and those of at least 8 characters that contain a digit, by `*`. */
function shapeOf(path: string): string {
  if (!/\d/.test(path)) return path;
  return path.replace(/[^/]+/g, (segment) =>
    /^\d+$/.test(segment) || (segment.length >= 8 && /\d/.test(segment)) ? "*" : segment,
  );
}
