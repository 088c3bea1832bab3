/** Connections over TLS; loaded only where a url asks for it. */

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { checkServerIdentity, connect } from "node:tls";
import { FatalDriverError } from "../errors.ts";
import type { Connector, Transport, TransportEvents } from "./transport.ts";
import { createSocketTransport, formatServerUrl, toConnectError } from "./transport.ts";

/** What a client wants of a server's TLS; paths name PEM files. */
export interface ClientTlsOptions {
  /** Issuers to trust instead of those that Node knows (NODE_EXTRA_CA_CERTS among them). */
  readonly ca?: string;
  /** The client's own certificate, for servers that demand one, and its key. */
  readonly cert?: string;
  readonly key?: string;
  /** The name the server's certificate must be for. Default: the host. */
  readonly servername?: string;
}

interface HostPort {
  readonly host: string;
  readonly port: number;
}

/**
 * Dials TLS. The files are read again for every connection, so that renewed ones are used.
 * @throws FatalDriverError naming a file that cannot be read, or holds nothing of the kind
 */
export function createTlsConnector(target: HostPort, tls: ClientTlsOptions): Connector {
  let files = readTlsFiles(tls);
  const url = formatServerUrl(target, "holdfasts");
  const servername = tls.servername ?? target.host;
  const connector = (events: TransportEvents): Transport => {
    files = rereadTlsFiles(tls, files);
    const socket = connect({
      ...target,
      ...files,
      // an address is no name to ask for, but the certificate is checked for it all the same
      ...(isIP(servername) === 0 && { servername }),
      ...(tls.servername !== undefined && { checkServerIdentity: checkIdentityAs(servername) }),
      minVersion: "TLSv1.2",
      // whatever the environment says (NODE_TLS_REJECT_UNAUTHORIZED)
      rejectUnauthorized: true,
    });
    socket.setNoDelay(true);
    // what is written before the server has shown who it is waits in Node, and goes with a connection that is refused
    return createSocketTransport(socket, events, (error) => toTlsError(error, url, servername));
  };
  return Object.assign(connector, { url });
}

function checkIdentityAs(name: string): NonNullable<ConnectionOptions["checkServerIdentity"]> {
  return (_host, certificate) => checkServerIdentity(name, certificate);
}

type TlsFiles = Pick<ConnectionOptions, "ca" | "cert" | "key">;

function readTlsFiles({ ca, cert, key }: ClientTlsOptions): TlsFiles {
  return {
    ...(ca !== undefined && { ca: readPem(ca, "ca") }),
    ...(cert !== undefined && { cert: readPem(cert, "cert") }),
    ...(key !== undefined && { key: readPem(key, "key") }),
  };
}

/** In the moment of their renewal files may be missing: then the last ones are good enough. */
function rereadTlsFiles(tls: ClientTlsOptions, lastFiles: TlsFiles): TlsFiles {
  try {
    return readTlsFiles(tls);
  } catch (error) {
    if (error instanceof FatalDriverError) return lastFiles;
    throw error;
  }
}

function readPem(path: string, parameter: string): string {
  const subject = `url: ${parameter} names ${path}, which`;
  const text = readTextFile(path, subject);
  const pemLabel = parameter === "key" ? "PRIVATE KEY" : "CERTIFICATE";
  // Node takes issuers that are none without a word, and then knows nobody
  if (!text.includes(`${pemLabel}-----`))
    throw new FatalDriverError(`${subject} holds no PEM ${pemLabel.toLowerCase()}`);
  return text;
}

function readTextFile(path: string, subject: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new FatalDriverError(`${subject} cannot be read (${(cause as NodeJS.ErrnoException).code})`, { cause });
  }
}

const UNKNOWN_ISSUER =
  "is signed by an issuer that is not known here: name its certificate by ?ca= or NODE_EXTRA_CA_CERTS";
/** What is wrong with the server's certificate, by the code of Node's error. */
const CERTIFICATE_ERRORS: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: UNKNOWN_ISSUER,
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN_ISSUER,
  UNABLE_TO_GET_ISSUER_CERT: UNKNOWN_ISSUER,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN_ISSUER,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN_ISSUER,
  CERT_SIGNATURE_FAILURE: "is not signed by the issuer it names",
  CERT_HAS_EXPIRED: "has expired",
  CERT_NOT_YET_VALID: "is not valid yet",
  CERT_REVOKED: "was revoked",
};
const NOT_TLS_CODES: ReadonlySet<string> = new Set([
  "EPROTO",
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
]);

/** Node's error in words that say where, and what can be done. */
function toTlsError(error: NodeJS.ErrnoException, serverUrl: string, servername: string): Error {
  const { code = "", message } = error;
  const createError = (text: string): Error => Object.assign(new Error(text), { code });
  const certificateError = CERTIFICATE_ERRORS[code];
  if (certificateError !== undefined) return createError(`the certificate of ${serverUrl} ${certificateError}`);
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    const { subjectaltname = "no name" } = (error as { cert?: { subjectaltname?: string } }).cert ?? {};
    return createError(`the certificate of ${serverUrl} is for ${subjectaltname}, not for ${servername}`);
  }
  if (/wrong version number|packet length too long/i.test(message) || NOT_TLS_CODES.has(code)) {
    return createError(`${serverUrl} does not speak TLS there: without it the url begins with holdfast://`);
  }
  if (/alert protocol version|unsupported protocol/i.test(message))
    return createError(`${serverUrl} speaks no TLS from 1.2 on`);
  if (/before secure TLS connection/.test(message))
    return createError(`${serverUrl} ended the connection before TLS stood`);
  if (/^ERR_(SSL|OSSL|TLS)_/.test(code)) return createError(`${serverUrl}: TLS failed (${code})`);
  return toConnectError(error, serverUrl);
}
