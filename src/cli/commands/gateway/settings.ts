/** The settings of `holdfast gateway`: those of `holdfast serve` that concern HTTP, and its own. */

import { Option } from "commander";
import type { GatewayOptions } from "../../../gateway/gateway-config.ts";
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
  /** undefined: the user's own lock server. */
  readonly url: string | undefined;
  readonly options: Omit<GatewayOptions, "driver" | "log">;
}

/** Converts the settings to the options of a gateway. Opens nothing. */
export function toGatewaySettings(settings: Settings): GatewaySettings {
  const referenceKeyFile = settings.text("reference-key");
  return {
    url: settings.text("url"),
    options: {
      ...toPortOptions(settings),
      http: settings.text("http") ?? DEFAULT_ADDRESS,
      ...(referenceKeyFile !== undefined && { referenceKeyFile }),
    },
    ...toLogSettings(settings),
  };
}
