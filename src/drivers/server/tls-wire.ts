/** Connections over TLS; loaded only where a url asks for it. */

import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import type { ConnectionOptions } from "node:tls";
import { checkServerIdentity, connect } from "node:tls";
import { FatalDriverError } from "../../errors.ts";
import type { Dial, Wire, WireEvents } from "./wire.ts";
import { unreached, urlOf, wireOn } from "./wire.ts";

/** What a client wants of a server's TLS; paths name PEM files. */
export interface ClientTls {
  /** Issuers to trust instead of those that Node knows (NODE_EXTRA_CA_CERTS among them). */
  readonly ca?: string;
  /** The client's own certificate, for servers that demand one, and its key. */
  readonly cert?: string;
  readonly key?: string;
  /** The name the server's certificate must be for. Default: the host. */
  readonly servername?: string;
}

interface Place {
  readonly host: string;
  readonly port: number;
}

/**
 * Dials TLS. The files are read again for every connection, so that renewed ones are used.
 * @throws FatalDriverError naming a file that cannot be read, or holds nothing of the kind
 */
export function tlsDial(place: Place, tls: ClientTls): Dial {
  let files = filesOf(tls);
  const to = urlOf(place, "holdfasts");
  const servername = tls.servername ?? place.host;
  const dial = (events: WireEvents): Wire => {
    files = renewed(tls, files);
    const socket = connect({
      ...place,
      ...files,
      // an address is no name to ask for, but the certificate is checked for it all the same
      ...(isIP(servername) === 0 && { servername }),
      ...(tls.servername !== undefined && { checkServerIdentity: identityOf(servername) }),
      minVersion: "TLSv1.2",
      // whatever the environment says (NODE_TLS_REJECT_UNAUTHORIZED)
      rejectUnauthorized: true,
    });
    socket.setNoDelay(true);
    // what is written before the server has shown who it is waits in Node, and goes with a connection that is refused
    return wireOn(socket, events, (error) => explained(error, to, servername));
  };
  return Object.assign(dial, { to });
}

function identityOf(name: string): NonNullable<ConnectionOptions["checkServerIdentity"]> {
  return (_host, certificate) => checkServerIdentity(name, certificate);
}

type Files = Pick<ConnectionOptions, "ca" | "cert" | "key">;

function filesOf({ ca, cert, key }: ClientTls): Files {
  return {
    ...(ca !== undefined && { ca: textOf(ca, "ca") }),
    ...(cert !== undefined && { cert: textOf(cert, "cert") }),
    ...(key !== undefined && { key: textOf(key, "key") }),
  };
}

/** In the moment of their renewal files may be missing: then the last ones are good enough. */
function renewed(tls: ClientTls, last: Files): Files {
  try {
    return filesOf(tls);
  } catch (error) {
    if (error instanceof FatalDriverError) return last;
    throw error;
  }
}

function textOf(path: string, parameter: string): string {
  const named = `url: ${parameter} names ${path}, which`;
  const text = textIn(path, named);
  const what = parameter === "key" ? "PRIVATE KEY" : "CERTIFICATE";
  // Node takes issuers that are none without a word, and then knows nobody
  if (!text.includes(`${what}-----`)) throw new FatalDriverError(`${named} holds no PEM ${what.toLowerCase()}`);
  return text;
}

function textIn(path: string, named: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new FatalDriverError(`${named} cannot be read (${(cause as NodeJS.ErrnoException).code})`, { cause });
  }
}

const UNKNOWN_ISSUER =
  "is signed by an issuer that is not known here: name its certificate by ?ca= or NODE_EXTRA_CA_CERTS";
/** What is wrong with the server's certificate, by the code of Node's error. */
const CERTIFICATE: Readonly<Record<string, string>> = {
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
const NO_TLS: ReadonlySet<string> = new Set([
  "EPROTO",
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
]);

/** Node's error in words that say where, and what can be done. */
function explained(error: NodeJS.ErrnoException, name: string, servername: string): Error {
  const { code = "", message } = error;
  const sentence = (said: string): Error => Object.assign(new Error(said), { code });
  const wrong = CERTIFICATE[code];
  if (wrong !== undefined) return sentence(`the certificate of ${name} ${wrong}`);
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    const { subjectaltname = "no name" } = (error as { cert?: { subjectaltname?: string } }).cert ?? {};
    return sentence(`the certificate of ${name} is for ${subjectaltname}, not for ${servername}`);
  }
  if (/wrong version number|packet length too long/i.test(message) || NO_TLS.has(code)) {
    return sentence(`${name} does not speak TLS there: without it the url begins with holdfast://`);
  }
  if (/alert protocol version|unsupported protocol/i.test(message))
    return sentence(`${name} speaks no TLS from 1.2 on`);
  if (/before secure TLS connection/.test(message)) return sentence(`${name} ended the connection before TLS stood`);
  if (/^ERR_(SSL|OSSL|TLS)_/.test(code)) return sentence(`${name}: TLS failed (${code})`);
  return unreached(error, name);
}
