/** Failed sends: what a rejection of `fetch` says about the request. */
/** Codes of Node for connections that were never made. */
const connectFailure = /^(EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|UND_ERR_CONNECT_TIMEOUT)$/;

interface NodeError {
  readonly cause?: NodeError;
  readonly code?: string;
  readonly errors?: readonly NodeError[];
  readonly message?: string;
  readonly syscall?: string;
}

/** True if the arguments are invalid: `fetch` rejects them with the same `TypeError` as a broken connection. */
export function isInvalid(url: string, init: RequestInit): boolean {
  try {
    new Request(url, { ...init, signal: null, body: init.body == null ? null : "" });
    return false;
  } catch {
    return true;
  }
}

/**
 * True if the server certainly did not process the request: no connection was made, or the server refused the HTTP/2
 * stream. Browsers do not tell.
 */
export function isUnprocessed(error: unknown): boolean {
  const { cause, code = "", errors, message = "", syscall = "" } = (error ?? {}) as NodeError;
  if (errors?.length) return errors.every(isUnprocessed); // One for each address that was tried.
  if (cause) return isUnprocessed(cause);
  return (connectFailure.test(code) && !/read|write/.test(syscall)) || /_REFUSED_STREAM$/.test(message);
}
