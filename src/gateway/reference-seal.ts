/**
 * References of a gateway with accounts on a store that knows none: "hf1.BODY.CHECKSUM.ACCOUNT.MAC". The account is
 * that which acquired the lock, and only it may use the reference. The library reads such a reference, too: with it,
 * and with access to the store itself, the lock is at hand anyway.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/** The bytes of the MAC (HMAC-SHA-256, cut: RFC 2104, section 5). */
const MAC_BYTES = 16;
const KEY_BYTES = 32;

export class ReferenceSeal {
  readonly #key: Buffer;

  /** @param key of all gateways of the store. Default: only this gateway accepts its references */
  constructor(key: Buffer = randomBytes(KEY_BYTES)) {
    this.#key = key;
  }

  seal(reference: string, account: string): string {
    const text = `${reference}.${Buffer.from(account).toString("base64url")}`;
    return `${text}.${this.#mac(text).toString("base64url")}`;
  }

  /** The account of a sealed reference; null: it has no seal, or not one of this key. */
  accountOf(reference: string): string | null {
    const [, text, account, mac] = /^(hf1\.[\w-]+\.[\w-]+\.([\w-]*))\.([\w-]+)$/.exec(reference.trim()) ?? [];
    if (text === undefined || account === undefined || mac === undefined) return null;
    const given = Buffer.from(mac, "base64url");
    const isOurs = given.length === MAC_BYTES && timingSafeEqual(given, this.#mac(text));
    return isOurs ? Buffer.from(account, "base64url").toString() : null;
  }

  #mac(text: string): Buffer {
    return createHmac("sha256", this.#key).update(text).digest().subarray(0, MAC_BYTES);
  }
}
