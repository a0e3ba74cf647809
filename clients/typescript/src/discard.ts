/** Discarding a response that will not be returned, so that its connection can be used again and nothing leaks. */
import { readBody } from "./body.js";

/** Reading the rest of a longer body costs more than a new connection. */
const drainMax = 65_536;

/** Reads a short body to its end, and cancels a long one. Returns a function that cancels what is still being read. */
export function discard({ body }: Response): (() => void) | undefined {
  // React Native has read it all before it gives a response, and shows no body. A locked one is read by somebody else.
  return body?.locked === false ? readBody(body, drainMax) : undefined;
}
