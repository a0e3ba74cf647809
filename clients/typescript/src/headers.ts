/** Response headers: a `Headers` object, or a list of lines as the test vectors have them. */

export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;
export type ResponseHeaders = Headers | HeaderList;

/** All lines of a header. `Headers` has joined them with ", " already, and gives them as one. */
export function lines(headers: ResponseHeaders, name: string): string[] {
  if ("get" in headers) {
    const value = headers.get(name);
    return value === null ? [] : [value];
  }
  return headers.filter(([other]) => other.toLowerCase() === name).map(([, value]) => value);
}

/** All lines of a header joined with ", "; undefined if there are none or they are longer than `bytesMax`. */
export function joined(headers: ResponseHeaders, name: string, bytesMax: number): string | undefined {
  const found = lines(headers, name);
  const text = found.join(", ");
  return found.length > 0 && text.length <= bytesMax ? text : undefined;
}

/** The value that all lines of a header agree on; "" if they differ, undefined if there are none. */
export function agreed(headers: ResponseHeaders, name: string): string | undefined {
  const values = new Set(
    lines(headers, name)
      .flatMap((line) => line.split(","))
      .map(trimmed),
  );
  if (values.size === 0) return undefined;
  return values.size === 1 ? [...values][0] : "";
}

/** Without the spaces and tabs around it. */
export function trimmed(text: string): string {
  return text.replace(/^[ \t]+|[ \t]+$/g, "");
}
