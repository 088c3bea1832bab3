/** The first messages on a connection: the session, the credentials, the watches. */

import { AuthFailedError } from "./errors.ts";
import { JuteReader, JuteWriter } from "./jute.ts";
import type { ConnectResponse } from "./records.ts";
import { OP, readConnect, writeConnect, XID } from "./records.ts";
import type { SaslOptions } from "./sasl.ts";
import { digestMd5 } from "./sasl.ts";
import type { Watches } from "./watches.ts";

/** A credential of one of ZooKeeper's own schemes, for instance digest and user:password. */
export interface AuthInfo {
  readonly scheme: string;
  readonly auth: Buffer;
}

const NO_PASSWORD: Buffer = Buffer.alloc(16);

export class Handshake {
  readonly #auth: readonly AuthInfo[];
  readonly #sasl: SaslOptions | null;
  #isAuthenticated = false;

  constructor(auth: readonly AuthInfo[], sasl: SaslOptions | null) {
    this.#auth = auth;
    this.#sasl = sasl;
  }

  /** Requests the existing session, or a new one. */
  encodeConnect(
    lastZxidSeen: bigint,
    timeoutMs: number,
    session: { readonly id: bigint; readonly password: Buffer } | null,
  ): Buffer {
    const writer = new JuteWriter();
    const { id: sessionId, password } = session ?? { id: 0n, password: NO_PASSWORD };
    writeConnect(writer, { lastZxidSeen, timeoutMs: Math.round(timeoutMs), sessionId, password });
    return writer.frame();
  }

  decodeConnect(frame: Buffer): ConnectResponse {
    return readConnect(new JuteReader(frame));
  }

  /** With SASL: requests the server's challenge; otherwise null. */
  encodeSaslStart(): Buffer | null {
    this.#isAuthenticated = false;
    return this.#sasl === null ? null : encodeSaslFrame(Buffer.alloc(0));
  }

  /** Answers the server's challenge; null: authentication is complete. @throws AuthFailedError */
  answerChallenge(frame: Buffer): Buffer | null {
    const reader = new JuteReader(frame);
    reader.int();
    reader.long();
    if (reader.int() !== 0) throw new AuthFailedError();
    const challenge = reader.buffer();
    if (challenge === null || challenge.length === 0) {
      // the server would accept the client without authentication
      if (!this.#isAuthenticated)
        throw new AuthFailedError("ZooKeeper does not request SASL credentials: no users are configured");
      return null;
    }
    const answer = digestMd5(challenge, this.#sasl as SaslOptions);
    this.#isAuthenticated = true;
    return answer === null ? null : encodeSaslFrame(answer);
  }

  encodeCredentials(): Buffer[] {
    return this.#auth.map(({ scheme, auth }) =>
      new JuteWriter().int(XID.auth).int(OP.auth).int(0).text(scheme).buffer(auth).frame(),
    );
  }

  /** Sets all watches again, as of the last transaction seen: changes since then fire at once. */
  encodeWatches(watches: Watches, lastZxid: bigint): Buffer[] {
    return Array.from(watches.encodeChunks(), (write) => {
      const writer = new JuteWriter().int(XID.setWatches).int(OP.setWatches2);
      write(writer, lastZxid);
      return writer.frame();
    });
  }
}

function encodeSaslFrame(token: Buffer): Buffer {
  return new JuteWriter().int(0).int(OP.sasl).buffer(token).frame();
}
