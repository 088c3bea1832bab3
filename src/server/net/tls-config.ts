/** The certificate of a server: loaded, checked, and reloaded after it was renewed. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { SecureContextOptions } from "node:tls";
import { createSecureContext } from "node:tls";
import { systemErrorCode } from "../../util/system-error.ts";

/** The PEM files of a TLS server. They are read at the start and again by reload(). */
export interface TlsFiles {
  /** The certificate, followed by its intermediate certificates. */
  readonly cert: string;
  /** The private key of the certificate. */
  readonly key: string;
  /** Requires of every client a certificate signed by one of these CAs. Default: none is required. */
  readonly clientCa?: string;
}

/** A certificate, key or CA file cannot be used; the message names the file and the reason. */
class TlsError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "TlsError";
  }
}

/** The loaded files, in the form that node:tls and node:https expect. */
export interface TlsConfig {
  readonly context: SecureContextOptions;
  /** The host names that it is valid for, without wildcards. */
  readonly hostNames: readonly string[];
  /** True if clients must present a certificate. */
  readonly requiresClientCert: boolean;
  /** Why every client would refuse it now; null: they would not. */
  readonly invalidReason: string | null;
  /** Problems that an operator should know of although the files can be used. */
  readonly warnings: readonly string[];
  /** For the log: the names in the certificate and its expiry. */
  readonly summary: string;
}

const DAY_MS = 86_400_000;
/** A certificate that expires within this time causes a warning. */
const EXPIRY_WARNING_MS = 14 * DAY_MS;

/**
 * Loads and checks the files.
 * @throws TlsError naming the first file that cannot be used
 */
export function loadTlsConfig(files: TlsFiles, now: number = Date.now()): TlsConfig {
  const certText = readPem(files.cert, "certificate");
  const keyText = readPem(files.key, "key");
  const caText = files.clientCa === undefined ? undefined : readPem(files.clientCa, "client CA");
  const cert = parseCertificate(certText, files.cert);
  checkKey(cert, keyText, files);
  if (caText !== undefined) parseCertificate(caText, files.clientCa as string);
  const context: SecureContextOptions = {
    cert: certText,
    key: keyText,
    minVersion: "TLSv1.2",
    // without it, a client that resumes a session would be disconnected where client certificates are required
    sessionIdContext: "holdfast",
    ...(caText !== undefined && { ca: caText }),
  };
  try {
    createSecureContext(context);
  } catch (error) {
    throw new TlsError(`the certificate ${files.cert} cannot be used: ${(error as Error).message}`, error);
  }
  const invalidReason = findExpiryProblem(cert, files.cert, now);
  return {
    context,
    invalidReason,
    hostNames: [...(cert.subjectAltName ?? "").matchAll(/\bDNS:([^\s,"*]+)/g)].map((match) => match[1] as string),
    requiresClientCert: caText !== undefined,
    warnings: [invalidReason ?? findExpiryWarning(cert, files.cert, now), findPermissionWarning(files.key)].filter(
      (warning) => warning !== null,
    ),
    summary: `certificate for ${cert.subjectAltName ?? cert.subject.replaceAll("\n", ", ")}, valid until ${cert.validTo}`,
  };
}

function readPem(path: string, kind: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new TlsError(`the ${kind} ${path} cannot be read (${systemErrorCode(error)})`, error);
  }
}

function parseCertificate(text: string, path: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch (error) {
    throw new TlsError(`${path} contains no PEM certificate`, error);
  }
}

function checkKey(cert: X509Certificate, text: string, { cert: certPath, key: path }: TlsFiles): void {
  let matches: boolean;
  try {
    matches = cert.checkPrivateKey(createPrivateKey(text));
  } catch (error) {
    const needsPassphrase = systemErrorCode(error) === "ERR_MISSING_PASSPHRASE";
    // the parser's own message may quote the key
    throw new TlsError(
      `${path} ${needsPassphrase ? "is encrypted with a passphrase: store it without one" : "contains no PEM private key"}`,
    );
  }
  if (!matches) throw new TlsError(`the key ${path} does not belong to the certificate ${certPath}`);
}

function findExpiryProblem({ validFrom, validTo }: X509Certificate, path: string, now: number): string | null {
  if (Date.parse(validFrom) > now) return `the certificate ${path} is not valid before ${validFrom}`;
  return Date.parse(validTo) > now ? null : `the certificate ${path} has expired on ${validTo}: clients refuse it`;
}

function findExpiryWarning({ validTo }: X509Certificate, path: string, now: number): string | null {
  const remainingMs = Date.parse(validTo) - now;
  return remainingMs < EXPIRY_WARNING_MS
    ? `the certificate ${path} expires in ${Math.floor(remainingMs / DAY_MS)} days, on ${validTo}`
    : null;
}

function findPermissionWarning(path: string): string | null {
  if (process.getuid === undefined || (statSync(path).mode & 0o004) === 0) return null;
  return `the key ${path} is readable by every user: chmod 640 it`;
}
