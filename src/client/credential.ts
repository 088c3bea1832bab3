/** The credential for a Holdfast server: from an option, the environment or a file, never from a url. */

import { StoreRefusedError } from "../errors.ts";
import { readNamedFile } from "../os/files.ts";

/** A credential, or a function that returns the current one. */
export type Credential = string | (() => string);

const CREDENTIAL_VARIABLE = "HOLDFAST_CREDENTIAL";
const CREDENTIAL_FILE_VARIABLE = "HOLDFAST_CREDENTIAL_FILE";
/** Printable, without blanks: the protocol sends it as one word. */
const CREDENTIAL_PATTERN = /^[\x21-\x7e]{1,512}$/;

/**
 * Returns the credential to use, undefined if there is none.
 * @throws TypeError for an invalid credential; StoreRefusedError if its file cannot be read
 */
export function resolveCredential(option: unknown, env: NodeJS.ProcessEnv = process.env): Credential | undefined {
  if (typeof option === "function") return () => validateCredential(option(), "the value returned by credential");
  if (option !== undefined) return validateCredential(option, "credential");
  const [value, file] = [env[CREDENTIAL_VARIABLE] ?? "", env[CREDENTIAL_FILE_VARIABLE] ?? ""];
  if (value !== "" && file !== "")
    throw new TypeError(`${CREDENTIAL_VARIABLE} and ${CREDENTIAL_FILE_VARIABLE} are both set: unset one`);
  if (value !== "") return validateCredential(value, CREDENTIAL_VARIABLE);
  return file === "" ? undefined : credentialFromFile(file);
}

/** Reads the file now, and again for each connection, since the credential may be replaced. */
function credentialFromFile(path: string): Credential {
  const read = (): string =>
    validateCredential(readNamedFile(path, CREDENTIAL_FILE_VARIABLE).trim(), `the content of ${path}`);
  let lastRead = read();
  return () => {
    try {
      lastRead = read();
    } catch (error) {
      // the file may be in the middle of a replacement: the previous credential may still be valid
      if (!(error instanceof StoreRefusedError || error instanceof TypeError)) throw error;
    }
    return lastRead;
  };
}

/** The error message never contains the value, which is a secret. */
function validateCredential(value: unknown, name: string): string {
  if (typeof value === "string" && CREDENTIAL_PATTERN.test(value)) return value;
  throw new TypeError(`${name} must be a credential: one printable word`);
}
