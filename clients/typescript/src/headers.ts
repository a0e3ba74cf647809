/** Response headers: a `Headers` object, or a list of lines as the test vectors have them. */

export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;
export type ResponseHeaders = Headers | HeaderList;

/** All lines of a header, joined with ", " as `Headers` joins them; null if there are none. */
export function headerText(headers: ResponseHeaders, name: string): string | null {
  if ("get" in headers) return headers.get(name);
  const lines = headers.filter(([other]) => other.toLowerCase() === name);
  return lines.length > 0 ? lines.map(([, value]) => value).join(", ") : null;
}

/** Without the spaces and tabs around it. */
export function trimmed(text: string): string {
  // Not by replacing `[ \t]+$`, which looks at each space as often as there are spaces.
  return /[^ \t](.*[^ \t])?/s.exec(text)?.[0] ?? "";
}
