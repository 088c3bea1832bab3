// Certificates for tests, made by Node alone: a machine that runs the tests need not have openssl.

import type { KeyObject } from "node:crypto";
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { isIPv4, isIPv6 } from "node:net";
import { join } from "node:path";

/** A certificate with its key, both PEM. */
export type Certified = { readonly cert: string; readonly key: string };

export type Authority = Certified & {
  readonly name: string;
  /** A certificate for these host names and addresses. */
  issue(names: readonly string[], options?: Lifetime): Certified;
};

type Lifetime = {
  /** Default: sixty days. */
  readonly days?: number;
  /** Days since it began. Default: one. */
  readonly age?: number;
};

const DAY_MS = 86_400_000;

/** An issuer of its own, known to nobody. */
export function authority(name: string = "Holdfast test authority"): Authority {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const own = { subject: name, issuer: name, publicKey: keys.publicKey, signer: keys.privateKey };
  return {
    name,
    key: pemOf(keys.privateKey),
    cert: certificate({ ...own, names: [], isAuthority: true, days: 90, age: 5 }),
    issue(names, { days = 60, age = 1 } = {}) {
      const leaf = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const subject = names[0] ?? "nobody";
      const what = { subject, issuer: name, publicKey: leaf.publicKey, signer: keys.privateKey };
      return { key: pemOf(leaf.privateKey), cert: certificate({ ...what, names, isAuthority: false, days, age }) };
    },
  };
}

export type CertificateFiles = { readonly cert: string; readonly key: string; readonly ca: string };

/** Writes a certificate, its key and its issuer's certificate into a folder, over what may be there. */
export function writeCertificate(folder: string, { cert, key }: Certified, issuer: Authority): CertificateFiles {
  const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem"), ca: join(folder, "ca.pem") };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key, { mode: 0o600 });
  writeFileSync(files.ca, issuer.cert);
  return files;
}

type Content = {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly names: readonly string[];
  readonly isAuthority: boolean;
  readonly days: number;
  readonly age: number;
};

const ECDSA_WITH_SHA256 = sequence(oid("1.2.840.10045.4.3.2"));

/** RFC 5280, as much of it as Node's TLS wants to see. */
function certificate(content: Content): string {
  const began = Date.now() - content.age * DAY_MS;
  const body = sequence(
    tagged(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    ECDSA_WITH_SHA256,
    nameOf(content.issuer),
    sequence(time(began), time(began + content.days * DAY_MS)),
    nameOf(content.subject),
    content.publicKey.export({ type: "spki", format: "der" }),
    tagged(0xa3, sequence(...extensions(content))),
  );
  const signature = sign("sha256", body, content.signer);
  return pem("CERTIFICATE", sequence(body, ECDSA_WITH_SHA256, bits(signature)));
}

function extensions({ isAuthority, names }: Content): Buffer[] {
  const isCa = sequence(...(isAuthority ? [tagged(0x01, Buffer.from([0xff]))] : []));
  const list = [sequence(oid("2.5.29.19"), tagged(0x01, Buffer.from([0xff])), octets(isCa))];
  if (names.length > 0) list.push(sequence(oid("2.5.29.17"), octets(sequence(...names.map(alternative)))));
  return list;
}

/** A DNS name, or the bytes of an address. */
function alternative(name: string): Buffer {
  if (isIPv4(name)) return tagged(0x87, Buffer.from(name.split(".").map(Number)));
  if (!isIPv6(name)) return tagged(0x82, Buffer.from(name, "ascii"));
  if (name !== "::1") throw new Error("of IPv6 only ::1");
  return tagged(0x87, Buffer.concat([Buffer.alloc(15), Buffer.from([1])]));
}

function nameOf(common: string): Buffer {
  return sequence(tagged(0x31, sequence(oid("2.5.4.3"), tagged(0x0c, Buffer.from(common)))));
}

function time(at: number): Buffer {
  const text = new Date(at).toISOString().replace(/\.\d+|[-:T]/g, "");
  return tagged(0x18, Buffer.from(text));
}

function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let left = part >> 7; left > 0; left >>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tagged(0x06, Buffer.from(bytes));
}

function integer(value: Buffer): Buffer {
  return tagged(0x02, value);
}

function bits(value: Buffer): Buffer {
  return tagged(0x03, Buffer.concat([Buffer.from([0]), value]));
}

function octets(value: Buffer): Buffer {
  return tagged(0x04, value);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

/** Tag, length, value. */
function tagged(tag: number, value: Buffer): Buffer {
  const { length } = value;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), value]);
  const size = length < 0x100 ? [length] : [length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, 0x80 | size.length, ...size]), value]);
}

function pemOf(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function pem(label: string, der: Buffer): string {
  const lines = der.toString("base64").replace(/.{1,64}/g, "$&\n");
  return `-----BEGIN ${label}-----\n${lines}-----END ${label}-----\n`;
}
