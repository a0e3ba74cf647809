/** What a call is aimed at: its method, origin and shape. */

export interface Target {
  readonly method: string;
  readonly url: string;
  readonly origin: string;
  readonly shape: string;
}

// React Native's `URL` is incomplete, and parsing every URL twice costs time; absolute URLs need neither.
const absolute = /^(https?:\/\/)(?:[^/?#\\]*@)?([^/?#\\]+)([^?#\\]*)/i;

/** Describes `fetch(input, init)`. An invalid URL has the origin ""; `fetch` itself will reject it. */
export function describeTarget(input: string | URL | Request, init: RequestInit | undefined): Target {
  const request = isRequest(input) ? input : undefined;
  const method = (init?.method ?? request?.method ?? "GET").toUpperCase();
  const url = request ? request.url : String(input);
  const [origin, path] = splitUrl(url);
  return { method, url, origin, shape: `${method} ${shapeOf(path)}` };
}

export function isRequest(input: string | URL | Request): input is Request {
  return typeof input === "object" && "headers" in input;
}

function splitUrl(url: string): [origin: string, path: string] {
  const match = absolute.exec(url);
  if (match) {
    const scheme = match[1]!.toLowerCase();
    const host = match[2]!.toLowerCase().replace(scheme === "http://" ? /:(80)?$/ : /:(443)?$/, "");
    return [scheme + host, match[3] || "/"];
  }
  try {
    const { origin, pathname } = new URL(url, typeof location === "object" ? location.href : undefined);
    return [origin, pathname];
  } catch {
    return ["", url];
  }
}

/** The path with `*` for each segment of digits, and for each of at least 8 characters that contains a digit. */
function shapeOf(path: string): string {
  if (!/\d/.test(path)) return path;
  return path
    .split("/")
    .map((segment) => (/^\d+$/.test(segment) || (segment.length >= 8 && /\d/.test(segment)) ? "*" : segment))
    .join("/");
}
