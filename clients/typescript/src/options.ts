/** Replaces the defaults by the options that are given, and rejects numbers that could only be mistakes. */
export function completeOptions<T extends object>(defaults: T, options: object = {}): T {
  const complete = { ...defaults } as Record<string, unknown>;
  for (const [name, value] of Object.entries(options)) {
    const least = name === "attempts" ? 1 : 0;
    if (typeof value === "number" && !(value >= least)) {
      throw new RangeError(`option ${name} is ${value}; use at least ${least}`);
    }
    const before = complete[name] as object;
    // Backoffs are options within options.
    complete[name] = "firstMs" in Object(before) ? completeOptions(before, value as object) : (value ?? before);
  }
  return complete as T;
}
