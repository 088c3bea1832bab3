/** TLS for drivers: options from files, and a connector with errors in plain words. Loaded only for a url with TLS. */

import { isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { checkServerIdentity, connect, createSecureContext } from "node:tls";
import { StoreRefusedError } from "../errors.ts";
import { readNamedFile } from "../os/files.ts";
import type { Connector } from "./transport.ts";
import { createSocketTransport, toConnectError } from "./transport.ts";

/** The paths of PEM files, from a url. */
export interface TlsPaths {
  /** Trusted issuers, instead of those of Node (with NODE_EXTRA_CA_CERTS). */
  readonly ca?: string;
  /** The client's certificate, for servers that require one, and its key. */
  readonly cert?: string;
  readonly key?: string;
}

/** The TLS options of a client, from its url. */
export interface ClientTlsOptions extends TlsPaths {
  /** The expected name in the server's certificate. Default: the host. */
  readonly servername?: string;
}

interface HostPort {
  readonly host: string;
  readonly port: number;
}

/**
 * Creates a connector for TLS.
 * @param url the server's url, for messages
 * @throws as createTlsFileReader()
 */
export function createTlsConnector(target: HostPort, tls: ClientTlsOptions, url: string): Connector {
  const readFiles = createTlsFileReader(tls);
  const servername = tls.servername ?? target.host;
  return {
    url,
    connect(events) {
      const socket = connect({
        ...target,
        ...readFiles(),
        // TLS does not allow an address as the requested name (SNI); the certificate is still checked for it
        ...(isIP(servername) === 0 && { servername }),
        ...(tls.servername !== undefined && { checkServerIdentity: checkIdentityAs(servername) }),
        minVersion: "TLSv1.2",
        // set explicitly, since NODE_TLS_REJECT_UNAUTHORIZED would change the default
        rejectUnauthorized: true,
      });
      socket.setNoDelay(true);
      // Node buffers writes until the server is authenticated, and drops them if that fails
      return createSocketTransport(socket, events, (error) => toTlsError(error, url, servername));
    },
  };
}

function checkIdentityAs(name: string): NonNullable<ConnectionOptions["checkServerIdentity"]> {
  return (_host, certificate) => checkServerIdentity(name, certificate);
}

/** What the parameters of the url are called, for messages. */
type TlsParameterNames = Readonly<Record<keyof TlsPaths, string>>;
const OWN_NAMES: TlsParameterNames = { ca: "ca", cert: "cert", key: "key" };

type ClientTlsFiles = Pick<ConnectionOptions, "ca" | "cert" | "key">;

/**
 * Returns a function that reads the files, to be called for each connection, so that renewed certificates are used. During
 * a renewal files may be missing or not match each other: then it returns the last valid ones.
 * @throws StoreRefusedError naming a file that cannot be read or has the wrong content; TypeError for a certificate
 * without its key, or a key alone
 */
export function createTlsFileReader(paths: TlsPaths, names: TlsParameterNames = OWN_NAMES): () => ClientTlsFiles {
  if ((paths.cert === undefined) !== (paths.key === undefined)) {
    throw new TypeError(`url must name both ${names.cert} and ${names.key}, or neither`);
  }
  let lastFiles = readTlsFiles(paths, names);
  return () => {
    try {
      lastFiles = readTlsFiles(paths, names);
    } catch (error) {
      if (!(error instanceof StoreRefusedError)) throw error;
    }
    return lastFiles;
  };
}

function readTlsFiles({ ca, cert, key }: TlsPaths, names: TlsParameterNames): ClientTlsFiles {
  const files = {
    ...(ca !== undefined && { ca: readPem(ca, names.ca, "CERTIFICATE") }),
    ...(cert !== undefined && { cert: readPem(cert, names.cert, "CERTIFICATE") }),
    ...(key !== undefined && { key: readPem(key, names.key, "PRIVATE KEY") }),
  };
  try {
    createSecureContext(files);
  } catch (cause) {
    throw new StoreRefusedError(
      `url: ${names.ca}, ${names.cert} and ${names.key} cannot be used: ${(cause as Error).message}`,
      { cause },
    );
  }
  return files;
}

function readPem(path: string, parameter: string, pemLabel: "CERTIFICATE" | "PRIVATE KEY"): string {
  const text = readNamedFile(path, `url: ${parameter}`);
  // Node silently accepts a CA file without certificates and then trusts no issuer
  if (!text.includes(`${pemLabel}-----`))
    throw new StoreRefusedError(`url: ${parameter} names ${path}, which holds no PEM ${pemLabel.toLowerCase()}`);
  return text;
}

const UNKNOWN_ISSUER = "is signed by an unknown issuer: name the issuer's certificate with ?ca= or NODE_EXTRA_CA_CERTS";
/** Messages about the server's certificate, by the code of Node's error. */
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

/** Translates Node's error into a message with the server's url and a remedy. */
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
    return createError(`${serverUrl} does not use TLS: connect with holdfast://`);
  }
  if (/alert protocol version|unsupported protocol/i.test(message))
    return createError(`${serverUrl} does not support TLS 1.2 or later`);
  if (/before secure TLS connection/.test(message))
    return createError(`${serverUrl} closed the connection during the TLS handshake`);
  if (/^ERR_(SSL|OSSL|TLS)_/.test(code)) return createError(`${serverUrl}: TLS failed (${code})`);
  return toConnectError(error, serverUrl);
}
