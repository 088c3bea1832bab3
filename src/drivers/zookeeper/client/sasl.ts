/** SASL DIGEST-MD5 (RFC 2831), the client's side, as ZooKeeper's servers require it: authentication only. */

import { createHash, randomBytes } from "node:crypto";
import { AuthFailedError } from "./errors.ts";

/** A user known to the servers' JAAS configuration. */
export interface SaslOptions {
  readonly user: string;
  readonly password: string;
  /** Default "zookeeper". */
  readonly service?: string;
  /** Default "zk-sasl-md5", the servers' default. */
  readonly serverName?: string;
}

/**
 * The answer to a server's challenge; null if the server only confirmed that it knows the password, too.
 * @throws AuthFailedError if the challenge cannot be answered
 */
export function digestMd5(
  challenge: Buffer,
  options: SaslOptions,
  nonce: string = randomBytes(16).toString("hex"),
): Buffer | null {
  const directives = parseDirectives(challenge.toString("utf8"));
  if (directives.has("rspauth")) return null;
  const serverNonce = directives.get("nonce");
  if (serverNonce === undefined)
    throw new AuthFailedError("ZooKeeper requested a SASL mechanism other than DIGEST-MD5");
  const realm = directives.get("realm") ?? "";
  const uri = `${options.service ?? "zookeeper"}/${options.serverName ?? "zk-sasl-md5"}`;
  const [count, quality] = ["00000001", "auth"];
  const secret = md5(`${options.user}:${realm}:${options.password}`);
  const first = md5(Buffer.concat([secret, Buffer.from(`:${serverNonce}:${nonce}`)])).toString("hex");
  const second = md5(`AUTHENTICATE:${uri}`).toString("hex");
  const response = md5(`${first}:${serverNonce}:${count}:${nonce}:${quality}:${second}`).toString("hex");
  const answer = [
    "charset=utf-8",
    `username=${quote(options.user)}`,
    `realm=${quote(realm)}`,
    `nonce=${quote(serverNonce)}`,
    `nc=${count}`,
    `cnonce=${quote(nonce)}`,
    `digest-uri=${quote(uri)}`,
    "maxbuf=65536",
    `response=${response}`,
    `qop=${quality}`,
  ];
  return Buffer.from(answer.join(","));
}

function md5(input: string | Buffer): Buffer {
  return createHash("md5").update(input).digest();
}

function quote(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** name="value" or name=value, separated by commas. */
function parseDirectives(text: string): Map<string, string> {
  const values = new Map<string, string>();
  for (const [, name, inQuotes, bare] of text.matchAll(/([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))/gi)) {
    values.set((name as string).toLowerCase(), inQuotes?.replace(/\\(.)/g, "$1") ?? bare ?? "");
  }
  return values;
}
