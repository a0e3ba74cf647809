/** Discarding a response that will not be returned, so that its connection can be used again and nothing leaks. */

/** Reading the rest of a longer body costs more than a new connection. */
const drainMax = 65_536;

/** Reads a short body to its end, and cancels a long one. Returns a function that cancels what is still being read. */
export function discard(response: Response): () => void {
  const { body } = response;
  if (!body || response.bodyUsed) return () => {}; // React Native has read it all before it gives a response.
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  const drain = async () => {
    let left = drainMax;
    while (left >= 0) {
      const { done, value } = await reader.read();
      if (done) return;
      left -= value.byteLength;
    }
    cancel();
  };
  if (Number(response.headers.get("content-length")) > drainMax) cancel();
  else drain().catch(() => {});
  return cancel;
}
