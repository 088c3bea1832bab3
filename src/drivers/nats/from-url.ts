/** nats://user:password@host:4222,host:4222?bucket=locks: servers of NATS, and a bucket; nats://token@host with a token. */

import type { Driver } from "../../spi/driver.ts";
import { decodePercent } from "../../util/decode-percent.ts";
import type { ConnectOptions } from "../document-store-url.ts";
import { parseStoreParameters } from "../document-store-url.ts";
import { nats } from "./driver.ts";

const URL_PARTS = /^nats:\/\/(?:([^@/?#]*)@)?([^@/?#]+)\/?(?:\?([^#]*))?$/;

/**
 * The driver of a url, not opened yet.
 * @throws TypeError for an invalid url; its message does not contain the url, which may hold a password
 */
export function natsFromUrl(url: string, options: ConnectOptions): Driver {
  const parts = URL_PARTS.exec(url);
  const [, login, servers = "", query = ""] = parts ?? [];
  const { bucket, ...parameters } = parseStoreParameters("nats", query, ["bucket"], options);
  if (parts === null || bucket === undefined)
    throw new TypeError("url must have the form nats://user:password@host:4222,host:4222?bucket=locks");
  return nats({
    bucket,
    servers: servers.split(","),
    ...parseLogin(login),
    ...parameters,
  });
}

function parseLogin(login: string | undefined): { user?: string; password?: string; token?: string } {
  if (login === undefined) return {};
  const [first = "", ...others] = login.split(":").map(decodePercent);
  return others.length === 0 ? { token: first } : { user: first, password: others.join(":") };
}
