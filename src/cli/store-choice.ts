/** Which store a command uses: that of --url or --driver, else that of the environment, else the user's own server. */

import { redactUrl } from "../util/redact-url.ts";
import { CommandError } from "./errors.ts";

/** The flags that name a store, as commander parses them. */
export interface StoreFlags {
  readonly url?: string | undefined;
  readonly driver?: string | undefined;
}

/** The url of a store (undefined: the user's own server), or the module of a driver, with the setting that names it. */
export type StoreChoice =
  | { readonly url: string | undefined; readonly driver?: undefined }
  | { readonly driver: string; readonly origin: string; readonly url?: undefined };

/** @throws CommandError usage if two settings of equal rank name a store each */
export function chooseStore({ url, driver }: StoreFlags, env: NodeJS.ProcessEnv = process.env): StoreChoice {
  if (url !== undefined && driver !== undefined)
    throw new CommandError("usage", "--driver and --url cannot be combined: each of them names the store");
  if (driver !== undefined) return { driver, origin: "--driver" };
  if (url !== undefined) return { url };
  // an empty variable counts as unset
  const { HOLDFAST_URL: urlVariable = "", HOLDFAST_DRIVER: driverVariable = "" } = env;
  if (urlVariable !== "" && driverVariable !== "") {
    throw new CommandError(
      "usage",
      "HOLDFAST_DRIVER and HOLDFAST_URL are both set, and each of them names the store: unset one, or give --driver or --url",
    );
  }
  if (driverVariable !== "") return { driver: driverVariable, origin: "HOLDFAST_DRIVER" };
  return { url: urlVariable || undefined };
}

/** The name of a store in messages. */
export function describeStore({ url, driver }: StoreChoice): string {
  if (driver !== undefined) return `the driver ${driver}`;
  if (url === undefined || url === "") return "your lock server";
  return /^[a-z\d+]+:/.test(url) ? redactUrl(url) : "the url";
}
