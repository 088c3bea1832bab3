/** A connection to a server of the harness, by frames: what no client would send, and every reply as it is. */

import type { Connection } from "../../src/server/connection/connection.ts";
import type { Peer } from "../../src/server/connection/connection-limiter.ts";
import { randomId } from "../../src/util/ids.ts";
import type { ServerHarness } from "./server-harness.ts";

export class FrameConnection {
  readonly connection: Connection;
  readonly session: string = randomId();
  /** All that the server has written. */
  output = "";
  isClosed = false;
  isPaused = false;
  /** Bytes that the client has not read yet. */
  unreadBytes = 0;
  readonly #harness: ServerHarness;

  constructor(harness: ServerHarness, peer: Peer = { isLocal: true, address: "" }) {
    this.#harness = harness;
    const transport = {
      write: (text: string) => {
        this.output += text;
      },
      close: () => {
        this.isClosed = true;
      },
      bufferedBytes: () => this.unreadBytes,
      setPaused: (isPaused: boolean) => {
        this.isPaused = isPaused;
      },
    };
    this.connection = harness.service?.accept(transport, peer) as Connection;
  }

  hello(fields: Readonly<Record<string, unknown>> = {}): this {
    this.connection.receive([JSON.stringify({ hello: { protocol: 1, session: this.session, ...fields } })]);
    this.output = "";
    return this;
  }

  /** Sends these frames in one line; returns the frames of all replies that are there at once. */
  send(...frames: readonly unknown[]): readonly unknown[][] {
    this.output = "";
    this.connection.receive([this.line(...frames)]);
    return this.replies;
  }

  line(...frames: readonly unknown[]): string {
    return JSON.stringify([this.#harness.service?.runId, ...frames]);
  }

  /** The frames of the output. */
  get replies(): readonly unknown[][] {
    const lines = this.output.split("\n").filter((line) => line.startsWith("["));
    return lines.flatMap((line) => (JSON.parse(line) as unknown[][]).slice(1));
  }

  /** The error that ended the connection. */
  get error(): unknown {
    const line = this.output.split("\n").find((text) => text.startsWith("{"));
    return line === undefined ? null : JSON.parse(line);
  }
}
