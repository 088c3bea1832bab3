/** The settings of `holdfast gateway`: those of `holdfast serve` that concern HTTP, and its own. */

import type { Option } from "commander";
import type { GatewayOptions } from "../../../gateway/gateway-config.ts";
import type { LogFormat, LogThreshold } from "../serve/log.ts";
import { LOG_FORMATS, LOG_THRESHOLDS } from "../serve/log.ts";
import type { Settings } from "../serve/settings.ts";
import { createServeOptions, parseChoice, parseLimits, setting, toTlsFiles } from "../serve/settings.ts";

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

export interface GatewaySettings {
  /** undefined: the user's own lock server. */
  readonly url: string | undefined;
  readonly options: Omit<GatewayOptions, "driver" | "log">;
  readonly logFormat: LogFormat;
  readonly logLevel: LogThreshold;
}

/** Converts the settings to the options of a gateway. Opens nothing. */
export function toGatewaySettings(settings: Settings): GatewaySettings {
  const credentials = settings.text("credentials");
  const httpNames = settings.list("http-name");
  const limit = settings.list("limit");
  const referenceKeyFile = settings.text("reference-key");
  const tls = toTlsFiles(settings);
  return {
    url: settings.text("url"),
    options: {
      http: settings.text("http") ?? DEFAULT_ADDRESS,
      ...(credentials !== undefined && { access: { file: credentials } }),
      ...(tls !== undefined && { tls }),
      ...(httpNames !== undefined && { httpNames }),
      ...(limit !== undefined && { limits: parseLimits(limit, settings) }),
      ...(referenceKeyFile !== undefined && { referenceKeyFile }),
      insecure: settings.has("insecure"),
    },
    logFormat: parseChoice(settings, "log-format", "human", LOG_FORMATS),
    logLevel: settings.has("quiet") ? "none" : parseChoice(settings, "log-level", "info", LOG_THRESHOLDS),
  };
}
