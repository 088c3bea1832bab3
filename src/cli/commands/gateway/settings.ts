/** The settings of `holdfast gateway`: those of `holdfast serve` that concern HTTP, and its own. */

import { Option } from "commander";
import type { GatewayOptions } from "../../../gateway/gateway-config.ts";
import type { StoreChoice } from "../../store-choice.ts";
import type { LogSettings, Settings } from "../serve/settings.ts";
import { createServeOptions, setting, toLogSettings, toPortOptions } from "../serve/settings.ts";

const DEFAULT_ADDRESS = "127.0.0.1:7421";

/** Settings that mean the same as for a server. */
const SHARED: readonly string[] = [
  ...["credentials", "tls-cert", "tls-key", "tls-client-ca", "http-name", "limit", "insecure"],
  ...["log-format", "log-level", "config", "check", "json", "quiet"],
];

/** The flags of `holdfast gateway`. The table in docs/guide/gateway.md lists the same. */
export function createGatewayOptions(): Option[] {
  return [
    setting("--url <url>", "the store (default: your own lock server)"),
    setting("--driver <module>", "a module with a driver or a store of your own, instead of --url"),
    setting("--http <host:port>", `where to serve HTTP (default: ${DEFAULT_ADDRESS})`),
    setting(
      "--reference-key <path>",
      "file of the key that all gateways of the store share: with --credentials, references of one are accepted by all",
    ),
    ...createServeOptions().filter((option) => SHARED.includes(option.name())),
  ];
}

/** The flags of `holdfast dashboard`: those of a gateway, and its own. */
export function createDashboardOptions(): Option[] {
  return [
    ...createGatewayOptions(),
    setting("--read-only", "no lock can be revoked from the pages"),
    new Option("--open", "open the link in the browser of this desktop"),
  ];
}

export interface GatewaySettings extends LogSettings {
  readonly store: StoreChoice;
  readonly options: Omit<GatewayOptions, "driver" | "log">;
}

/** A flag overrides a variable, and that the file, also if one is of --url and the other of --driver. */
function chooseGatewayStore(settings: Settings): StoreChoice {
  const [url, driver] = [settings.text("url"), settings.text("driver")];
  if (driver === undefined || settings.rank("url") > settings.rank("driver")) return { url };
  if (url !== undefined && settings.rank("url") === settings.rank("driver"))
    settings.reportError(
      "driver",
      `cannot be combined with ${settings.toError("url", "").origin}: each names the store`,
    );
  return { driver, origin: "--driver" };
}

/** Converts the settings to the options of a gateway. Opens nothing. */
export function toGatewaySettings(settings: Settings): GatewaySettings {
  const referenceKeyFile = settings.text("reference-key");
  return {
    store: chooseGatewayStore(settings),
    options: {
      ...toPortOptions(settings),
      http: settings.text("http") ?? DEFAULT_ADDRESS,
      ...(referenceKeyFile !== undefined && { referenceKeyFile }),
    },
    ...toLogSettings(settings),
  };
}
