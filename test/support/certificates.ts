// Certificates for tests, made by Node alone: a machine that runs the tests need not have openssl.

import type { KeyObject } from "node:crypto";
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { isIPv4, isIPv6 } from "node:net";
import { join } from "node:path";

/** A certificate with its key, both PEM. */
export type Certificate = { readonly cert: string; readonly key: string };

export type Authority = Certificate & {
  readonly name: string;
  /** A certificate for these host names and addresses. */
  issue(names: readonly string[], options?: CertificateLifetime): Certificate;
};

type CertificateLifetime = {
  /** Default: sixty days. */
  readonly days?: number;
  /** Days since it began. Default: one. */
  readonly age?: number;
};

const DAY_MS = 86_400_000;

/** An issuer of its own, known to nobody. */
export function createAuthority(name: string = "Holdfast test authority"): Authority {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const own = { subject: name, issuer: name, publicKey: keys.publicKey, signer: keys.privateKey };
  return {
    name,
    key: exportKeyPem(keys.privateKey),
    cert: buildCertificate({ ...own, names: [], isAuthority: true, days: 90, age: 5 }),
    issue(names, { days = 60, age = 1 } = {}) {
      const leaf = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const subject = names[0] ?? "nobody";
      const content = { subject, issuer: name, publicKey: leaf.publicKey, signer: keys.privateKey };
      return {
        key: exportKeyPem(leaf.privateKey),
        cert: buildCertificate({ ...content, names, isAuthority: false, days, age }),
      };
    },
  };
}

export type CertificateFiles = { readonly cert: string; readonly key: string; readonly ca: string };

/** Writes a certificate, its key and its issuer's certificate into a folder, over what may be there. */
export function writeCertificate(folder: string, { cert, key }: Certificate, issuer: Authority): CertificateFiles {
  const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem"), ca: join(folder, "ca.pem") };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key, { mode: 0o600 });
  writeFileSync(files.ca, issuer.cert);
  return files;
}

type CertificateContent = {
  readonly subject: string;
  readonly issuer: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly names: readonly string[];
  readonly isAuthority: boolean;
  readonly days: number;
  readonly age: number;
};

const ECDSA_WITH_SHA256 = encodeSequence(encodeOid("1.2.840.10045.4.3.2"));

/** RFC 5280, as much of it as Node's TLS wants to see. */
function buildCertificate(content: CertificateContent): string {
  const startedAt = Date.now() - content.age * DAY_MS;
  const body = encodeSequence(
    encodeTagged(0xa0, encodeInteger(Buffer.from([2]))),
    encodeInteger(Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    ECDSA_WITH_SHA256,
    encodeName(content.issuer),
    encodeSequence(encodeTime(startedAt), encodeTime(startedAt + content.days * DAY_MS)),
    encodeName(content.subject),
    content.publicKey.export({ type: "spki", format: "der" }),
    encodeTagged(0xa3, encodeSequence(...encodeExtensions(content))),
  );
  const signature = sign("sha256", body, content.signer);
  return encodePem("CERTIFICATE", encodeSequence(body, ECDSA_WITH_SHA256, encodeBitString(signature)));
}

function encodeExtensions({ isAuthority, names }: CertificateContent): Buffer[] {
  const isCa = encodeSequence(...(isAuthority ? [encodeTagged(0x01, Buffer.from([0xff]))] : []));
  const list = [
    encodeSequence(encodeOid("2.5.29.19"), encodeTagged(0x01, Buffer.from([0xff])), encodeOctetString(isCa)),
  ];
  if (names.length > 0)
    list.push(
      encodeSequence(encodeOid("2.5.29.17"), encodeOctetString(encodeSequence(...names.map(encodeAlternativeName)))),
    );
  return list;
}

/** A DNS name, or the bytes of an address. */
function encodeAlternativeName(name: string): Buffer {
  if (isIPv4(name)) return encodeTagged(0x87, Buffer.from(name.split(".").map(Number)));
  if (!isIPv6(name)) return encodeTagged(0x82, Buffer.from(name, "ascii"));
  if (name !== "::1") throw new Error("of IPv6 only ::1");
  return encodeTagged(0x87, Buffer.concat([Buffer.alloc(15), Buffer.from([1])]));
}

function encodeName(common: string): Buffer {
  return encodeSequence(
    encodeTagged(0x31, encodeSequence(encodeOid("2.5.4.3"), encodeTagged(0x0c, Buffer.from(common)))),
  );
}

function encodeTime(time: number): Buffer {
  const text = new Date(time).toISOString().replace(/\.\d+|[-:T]/g, "");
  return encodeTagged(0x18, Buffer.from(text));
}

function encodeOid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let highBits = part >> 7; highBits > 0; highBits >>= 7) groups.unshift((highBits & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return encodeTagged(0x06, Buffer.from(bytes));
}

function encodeInteger(value: Buffer): Buffer {
  return encodeTagged(0x02, value);
}

function encodeBitString(value: Buffer): Buffer {
  return encodeTagged(0x03, Buffer.concat([Buffer.from([0]), value]));
}

function encodeOctetString(value: Buffer): Buffer {
  return encodeTagged(0x04, value);
}

function encodeSequence(...parts: readonly Buffer[]): Buffer {
  return encodeTagged(0x30, Buffer.concat(parts));
}

/** Tag, length, value. */
function encodeTagged(tag: number, value: Buffer): Buffer {
  const { length } = value;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), value]);
  const size = length < 0x100 ? [length] : [length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, 0x80 | size.length, ...size]), value]);
}

function exportKeyPem(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function encodePem(label: string, der: Buffer): string {
  const lines = der.toString("base64").replace(/.{1,64}/g, "$&\n");
  return `-----BEGIN ${label}-----\n${lines}-----END ${label}-----\n`;
}
