/**
 * One connection over any transport: lines in, lines out. The first line identifies the client; a malformed one ends
 * the connection.
 *
 *   new           no handshake yet
 *   open          its calls are answered (request-handler.ts)
 *   keepSession   it keeps a session alive; its input is ignored
 *   closed
 */

import type { Principal } from "../../auth/access-control.ts";
import { ANONYMOUS } from "../../auth/access-control.ts";
import * as frames from "../../protocol/frames.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import { decodeClientHello, encodeConnectionError, ProtocolError } from "../../protocol/handshake.ts";
import { exceedsDepth } from "../../protocol/lines.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import { isId } from "../../util/ids.ts";
import { INTERNAL_FAILURE } from "../request-error.ts";
import type { Session } from "../session/session.ts";
import type { RoundRobinScheduler } from "../time-slicer.ts";
import type { Peer } from "./connection-limiter.ts";
import { decodeLabel } from "./decode-request.ts";
import type { RequestService } from "./request-handler.ts";
import { RequestHandler } from "./request-handler.ts";

/** The byte stream under a connection. */
export interface LineTransport {
  write(text: string): void;
  /** Closes the transport after the written bytes have been sent. */
  close(): void;
  /** Bytes written but not sent yet. Default: unknown, and output is not limited. */
  bufferedBytes?(): number;
  /** Stops reading (true), or resumes it (false). Default: input is buffered until it is handled. */
  setPaused?(isPaused: boolean): void;
}

/** What a connection needs of the server (service.ts). */
export interface ConnectionService extends RequestService {
  /** Begins every line to the client. */
  readonly runId: string;
  /** Serves connections with much input one after another. */
  readonly scheduler: RoundRobinScheduler;
  /** The connection whose input was handled last. */
  readonly lastActive: Connection | null;
  /** Begins a batch of calls of this connection. */
  beginBatch(connection: Connection): void;
  /** Makes endBatch() call flush(). */
  requestFlush(connection: Connection): void;
  /** @throws ProtocolError AUTH or LIMIT if the credential is not valid */
  openSession(hello: ClientHello, connection: Connection): Session;
  attachKeepSession(hello: ClientHello, connection: Connection): Session;
  encodeHello(isLocal: boolean): string;
  /** isClosedByServer: the server closed it, so its client may be alive. */
  connectionClosed(connection: Connection, session: Session | null, isClosedByServer: boolean): void;
}

/** Output is flushed at the latest when it has this length. */
const MAX_BUFFERED_CHARS = 8_192;
/**
 * The same while no other connection is active: the client then works in parallel with the server. With other clients
 * to serve, frequent writes would only cost time.
 */
const MAX_BUFFERED_CHARS_ALONE = 1_024;

/**
 * Unsent output of a client that does not read, before its connection is closed. The longest answers, pages of lists,
 * have about 1 MB: a client that falls behind by some of them is not yet lost.
 */
export const MAX_UNREAD_BYTES = 4_194_304;
/** Nesting depth of a first line: a hello has three levels. Later lines have the fixed form of their frames. */
const MAX_HELLO_DEPTH = 16;

const NO_LINES: readonly string[] = [];

const HTTP_REQUEST_LINE = /^[A-Z]{3,10} \S* ?HTTP\/\d/;
const HTTP_RESPONSE_BODY = "this port speaks the Holdfast lock protocol, not HTTP\n";

export class Connection {
  readonly peer: Peer;
  readonly #service: ConnectionService;
  readonly #transport: LineTransport;
  readonly #requestHandler: RequestHandler;
  #session: Session | null = null;
  #state: "new" | "open" | "keepSession" | "closed" = "new";
  #outputBuffer = "";
  #flushThreshold = MAX_BUFFERED_CHARS_ALONE;
  /** Received lines that are not handled yet. */
  #pendingLines: readonly string[] = NO_LINES;
  /** Paused: waits in the scheduler and is not read from. */
  #isPaused = false;
  // for the deadlines of unauthenticated connections
  dueAt = 0;
  heapIndex = -1;

  constructor(service: ConnectionService, transport: LineTransport, peer: Peer) {
    this.#service = service;
    this.#transport = transport;
    this.peer = peer;
    this.#requestHandler = new RequestHandler(service, this);
  }

  /** Connected by a Unix socket of this machine. */
  get isLocal(): boolean {
    return this.peer.isLocal;
  }

  /** Of a client that is a part of the server. */
  get isInProcess(): boolean {
    return this.peer.principal !== undefined;
  }

  /** True while input is still handled. */
  get isReadable(): boolean {
    return this.#state === "new" || this.#state === "open";
  }

  /** True while more input has arrived than fits one slice. Nothing is read meanwhile. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** True while its calls are answered. */
  get isOpen(): boolean {
    return this.#state === "open";
  }

  /** Null until the handshake is complete. */
  get session(): Session | null {
    return this.#session;
  }

  /** The authenticated principal. */
  get principal(): Principal {
    return this.#session?.principal ?? ANONYMOUS;
  }

  /** Handles the lines of one read. Their replies are written together unless they are long. */
  receive(lines: readonly string[]): void {
    const now = this.#service.clock.now();
    if (this.#session !== null) this.#session.lastHeardAt = now;
    if (this.#isPaused) {
      this.#pendingLines = [...this.#pendingLines, ...lines];
      return;
    }
    this.#pendingLines = lines;
    if (this.runUntil(this.#service.scheduler.deadlineFor(now))) return;
    this.#isPaused = true;
    this.#transport.setPaused?.(true);
    this.#service.scheduler.add(this);
  }

  /** Handles input in order until `deadline`; false: there is more. */
  runUntil(deadline: number): boolean {
    if (!this.isReadable) return true;
    this.#flushThreshold = this.#service.lastActive === this ? MAX_BUFFERED_CHARS_ALONE : MAX_BUFFERED_CHARS;
    this.#service.beginBatch(this);
    const isDone = this.#processLines(deadline);
    this.#service.endBatch();
    if (isDone && this.#isPaused) {
      this.#isPaused = false;
      this.#transport.setPaused?.(false);
    }
    return isDone;
  }

  #processLines(deadline: number): boolean {
    for (let index = 0; this.isReadable; ) {
      try {
        if (this.#requestHandler.isBusy) this.#requestHandler.processFrames(this.#session as Session, deadline);
        else if (index < this.#pendingLines.length) {
          this.#handleLine(this.#pendingLines[index++] as string);
          continue;
        } else break;
      } catch (error) {
        this.fail(error);
      }
      if ((this.#requestHandler.isBusy || index < this.#pendingLines.length) && this.#service.clock.now() >= deadline) {
        this.#pendingLines = this.#pendingLines.slice(index);
        return false;
      }
    }
    this.#pendingLines = NO_LINES;
    return true;
  }

  #handleLine(line: string): void {
    if (this.#state === "new") this.#handshake(line);
    else this.#requestHandler.handleLine(frames.decodeLine(line, this.#service.runId));
  }

  /** The transport has ended, closed by either side. */
  transportClosed(): void {
    this.#close(false);
    this.#service.endBatch();
  }

  /** Ends the connection with one line that gives the reason. */
  fail(error: unknown): void {
    this.#failWith(error, false);
  }

  /** Like fail(), for a client that is not at fault: its claims remain until their leases expire. */
  disconnect(error: ProtocolError): void {
    this.#failWith(error, true);
  }

  /** Refuses a connection that exceeds a limit. */
  reject(error: ProtocolError): void {
    this.#state = "closed";
    this.#transport.write(encodeConnectionError(error));
    this.#transport.close();
  }

  /** Sends the client a new answer about its claim. */
  pushAnswer(id: ClaimId, answer: Answer): void {
    if (this.#state === "open") this.send(frames.encodePush(id, frames.encodeAnswer(answer, 0)));
  }

  /** Tells the client at once that checking its claim again is worthwhile. */
  pushRecheck(id: ClaimId): void {
    if (this.#state !== "open") return;
    this.send(frames.encodeRecheck(id));
    this.flush();
  }

  /** Tells the client that another claim waits for this one. */
  pushRecalled(id: ClaimId): void {
    if (this.#state === "open") this.send(frames.encodeRecalled(id));
  }

  /** Announces the shutdown and closes. */
  drain(): void {
    if (this.#state === "open") this.send('["drain"]');
    this.flush();
    this.#state = "closed";
    this.#transport.close();
  }

  /** Adds a frame to the pending output. */
  send(frame: string): void {
    if (this.#state === "closed") return;
    if (this.#outputBuffer === "") {
      this.#outputBuffer = frame;
      this.#service.requestFlush(this);
      return;
    }
    this.#outputBuffer += `,${frame}`;
    if (this.#outputBuffer.length > this.#flushThreshold) this.flush();
  }

  /** Writes the pending output at once, or ends the connection if too much output is unread already. */
  flush(): void {
    if (this.#outputBuffer === "") return;
    const line = `["${this.#service.runId}",${this.#outputBuffer}]\n`;
    this.#outputBuffer = "";
    if (this.#state !== "closed" && (this.#transport.bufferedBytes?.() ?? 0) > MAX_UNREAD_BYTES) {
      return this.disconnect(new ProtocolError("SLOW", "too much unread output for this client"));
    }
    this.#transport.write(line);
  }

  #failWith(error: unknown, isClosedByServer: boolean): void {
    if (this.#state === "closed") return;
    const failure = error instanceof ProtocolError ? error : INTERNAL_FAILURE;
    this.#service.onRefused(failure.code);
    if (failure === INTERNAL_FAILURE) this.#service.log("a connection failed", error);
    this.flush();
    if (this.#isClosed()) return;
    this.#transport.write(encodeConnectionError(failure));
    this.#close(isClosedByServer);
    this.#transport.close();
  }

  /** A method, because flush() may close the connection, which the compiler cannot know. */
  #isClosed(): boolean {
    return this.#state === "closed";
  }

  #close(isClosedByServer: boolean): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#service.connectionClosed(this, this.#session, isClosedByServer);
  }

  #handshake(line: string): void {
    if (HTTP_REQUEST_LINE.test(line)) {
      const head = `HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: ${HTTP_RESPONSE_BODY.length}\r\n`;
      this.#transport.write(`${head}Connection: close\r\n\r\n${HTTP_RESPONSE_BODY}`);
      this.#close(false);
      this.#transport.close();
      return;
    }
    if (exceedsDepth(line, MAX_HELLO_DEPTH)) throw new ProtocolError("PROTOCOL", "the first line is nested too deeply");
    const hello = decodeClientHello(line);
    if (hello.probe === true) return this.#answerProbe();
    if (!isId(hello.session))
      throw new ProtocolError("PROTOCOL", "hello: session must be 26 characters of a-z and 2-7");
    this.#openSession(hello);
    this.#transport.write(this.#service.encodeHello(this.isLocal));
  }

  #openSession(hello: ClientHello): void {
    if (hello.keepSession) {
      this.#session = this.#service.attachKeepSession(hello, this);
      this.#state = "keepSession";
    } else {
      this.#session = this.#service.openSession({ ...hello, label: decodeLabel(hello.label) }, this);
      this.#state = "open";
    }
  }

  /** Answers a probe: another server checks which server listens on this socket. */
  #answerProbe(): void {
    if (!this.isLocal) throw new ProtocolError("UNSUPPORTED", "a probe needs a Unix socket");
    this.#transport.write(this.#service.encodeHello(true));
    this.#close(false);
    this.#transport.close();
  }
}
