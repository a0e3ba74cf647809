/** Response headers. */

/** What is read of a `Headers` object. Names are in lower case. */
export interface HeaderReader {
  /** All lines of a header, joined with ", "; null if there are none. */
  get(name: string): string | null;
}

/** Lines of headers, as the test vectors have them. */
export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;
export type ResponseHeaders = HeaderReader | HeaderList;

/** Reads lines as a `Headers` object reads them, but takes any value. */
export function headerReader(headers: ResponseHeaders): HeaderReader {
  if ("get" in headers) return headers;
  return {
    get(name) {
      const lines = headers.filter(([other]) => other.toLowerCase() === name);
      return lines.length > 0 ? lines.map(([, value]) => value).join(", ") : null;
    },
  };
}

/** Without the spaces and tabs around it. */
export function trimmed(text: string): string {
  // Not by replacing `[ \t]+$`, which looks at each space as often as there are spaces.
  return /[^ \t](.*[^ \t])?/s.exec(text)?.[0] ?? "";
}
