/**
 * Libraries that users install beside this package, or not. Each is imported in a try block of its own, by its name:
 * bundlers then accept that it is missing, as it is for users of other stores, and include it where it is installed.
 */

import { StoreRefusedError } from "../errors.ts";

/**
 * For what an import() of the package throws. @throws the error, if something else is wrong than that it is not
 * installed
 */
export function nullIfMissing(name: string, error: unknown): null {
  const { code, message } = error as NodeJS.ErrnoException;
  // MODULE_NOT_FOUND comes from CommonJS. A dependency of the package may be missing, too: that is an error
  if (!/^(?:ERR_)?MODULE_NOT_FOUND$/.test(code ?? "") || !message.includes(`'${name}'`)) throw error;
  return null;
}

export function createMissingError(
  subject: string,
  packages: readonly string[],
  alternative?: string,
): StoreRefusedError {
  const names = packages.map((name) => JSON.stringify(name)).join(" or ");
  const which = packages.length === 1 ? "which is not installed" : "neither of which is installed";
  const other = alternative === undefined ? "" : `, or use ${alternative}`;
  return new StoreRefusedError(`${subject} need the package ${names}, ${which}: npm install ${packages[0]}${other}`);
}
