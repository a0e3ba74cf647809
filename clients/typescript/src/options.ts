/** Replaces the defaults by the options that are given, and rejects numbers that could only be mistakes. */
export function completeOptions<T extends object>(defaults: T, options: object = {}): T {
  const complete = { ...defaults } as Record<string, unknown>;
  for (const [name, value] of Object.entries(options)) {
    const least = name === "attempts" ? 1 : 0;
    if (typeof value === "number" && !(value >= least)) {
      throw new RangeError(`option ${name} is ${value}; use at least ${least}`);
    }
    complete[name] = value ?? complete[name];
  }
  return complete as T;
}
