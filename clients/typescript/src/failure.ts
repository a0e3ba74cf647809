/** Failed sends: what a rejection of `fetch` says about the request. */
/** Codes of Node for connections that were never made. */
const connectFailure = /^(EAI_AGAIN|ECONNREFUSED|E(HOST|NET)UNREACH|ENOTFOUND|UND_ERR_CONNECT_TIMEOUT)$/;

interface NodeError {
  readonly cause?: NodeError;
  readonly code?: string;
  readonly errors?: readonly NodeError[];
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

/** True if no connection was made, so that nothing was sent. Browsers do not tell. */
export function isConnectFailure(error: unknown): boolean {
  const { cause, code = "", errors, syscall = "" } = (error ?? {}) as NodeError;
  if (errors?.length) return errors.every(isConnectFailure); // One for each address that was tried.
  return cause ? isConnectFailure(cause) : connectFailure.test(code) && !/read|write/.test(syscall);
}
