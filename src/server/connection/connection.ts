/**
 * One connection, on any stream: lines in, lines out. The first line says who it is; a malformed one ends it.
 *
 *   new         it has not said hello
 *   sentenced   it showed no valid credential and is told so after a while; nothing more of it is read
 *   open        its calls are answered (request-handler.ts)
 *   tether      it keeps a session alive; nothing of it is read
 *   closed
 */

import * as frames from "../../protocol/frames.ts";
import { exceedsDepth } from "../../protocol/framing.ts";
import type { ClientHello } from "../../protocol/handshake.ts";
import { decodeClientHello, encodeConnectionError, ProtocolError } from "../../protocol/handshake.ts";
import type { Answer, ClaimId } from "../../spi/driver.ts";
import { isId } from "../../util/ids.ts";
import type { Principal } from "../auth/access-control.ts";
import { ANONYMOUS } from "../auth/access-control.ts";
import type { LockService } from "../service.ts";
import type { Session } from "../session/session.ts";
import type { Peer } from "./connection-limiter.ts";
import { decodeLabel } from "./decode-request.ts";
import { RequestHandler } from "./request-handler.ts";

/** What a link is given to speak over. */
export interface Transport {
  write(text: string): void;
  /** Ends it after what was written has left. */
  close(): void;
  /** Bytes that were written and have not left yet. Default: it is not known, and nothing is bounded by it. */
  bufferedBytes?(): number;
  /** Nothing more is to be read from it for now (true), or again. Default: what comes is kept until it is looked at. */
  setPaused?(isPaused: boolean): void;
}

/** A line is written at the latest when this much has gathered for it. */
const MAX_BUFFERED_CHARS = 8_192;
/** Likewise while nobody else says anything: it is to work while we do. With others to serve writing often is only dear. */
const MAX_BUFFERED_CHARS_ALONE = 1_024;

const NO_LINES: readonly string[] = [];

const HTTP_REQUEST_LINE = /^[A-Z]{3,10} \S* ?HTTP\/\d/;
const HTTP_RESPONSE_BODY = "this port speaks the Holdfast lock protocol, not HTTP\n";

export class Connection {
  readonly peer: Peer;
  readonly #service: LockService;
  readonly #transport: Transport;
  readonly #requestHandler: RequestHandler;
  #session: Session | null = null;
  #state: "new" | "sentenced" | "open" | "tether" | "closed" = "new";
  #outputBuffer = "";
  #flushThreshold = MAX_BUFFERED_CHARS_ALONE;
  #pendingRefusal: ProtocolError | null = null;
  /** Lines that are not looked at yet: those before them are not done. */
  #pendingLines: readonly string[] = NO_LINES;
  /** It takes its turn with others (round-robin-scheduler.ts), and is not read from. */
  #isPaused = false;
  // for the schedule of those who have not said hello
  dueAt = 0;
  heapIndex = -1;

  constructor(service: LockService, transport: Transport, peer: Peer) {
    this.#service = service;
    this.#transport = transport;
    this.peer = peer;
    this.#requestHandler = new RequestHandler(service, this);
  }

  /** On a Unix socket of this machine. */
  get isLocal(): boolean {
    return this.peer.isLocal;
  }

  /** Are its bytes still looked at? */
  get isReadable(): boolean {
    return this.#state === "new" || this.#state === "open";
  }

  /** Has it said more than could be done at once? Then it is not read from for now. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** Are its calls still answered? */
  get isOpen(): boolean {
    return this.#state === "open";
  }

  /** Null until it has said hello. */
  get session(): Session | null {
    return this.#session;
  }

  /** Who it is. */
  get principal(): Principal {
    return this.#session?.principal ?? ANONYMOUS;
  }

  /** What it is told when its time to say hello has come; null: that it has come. */
  get pendingRefusal(): ProtocolError | null {
    return this.#pendingRefusal;
  }

  get hasPendingRefusal(): boolean {
    return this.#pendingRefusal !== null;
  }

  /** What one read has brought. What it brings about is written together, as far as it is not much. */
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

  /** Does what it was told, in order, until then; false: there is more. */
  runUntil(deadline: number): boolean {
    if (!this.isReadable) return true;
    this.#flushThreshold = this.#service.lastActive === this ? MAX_BUFFERED_CHARS_ALONE : MAX_BUFFERED_CHARS;
    this.#service.lastActive = this;
    this.#service.backend.beginBatch?.();
    const isDone = this.#processLines(deadline);
    this.#service.endTurn();
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

  /** The stream has ended, by whichever side. */
  transportClosed(): void {
    this.#close(false);
    this.#service.endTurn();
  }

  /** Ends the connection with one line that says why. */
  fail(error: unknown): void {
    this.#failWith(error, false);
  }

  /** The same, of a client that has done nothing to be given up for: what it holds stays until its leases end. */
  disconnect(error: ProtocolError): void {
    this.#failWith(error, true);
  }

  /** It is to be refused, but not yet. */
  delayRefusal(refusal: ProtocolError): void {
    this.#state = "sentenced";
    this.#pendingRefusal = refusal;
  }

  /** There is no room for it. */
  reject(error: ProtocolError): void {
    this.#state = "closed";
    this.#transport.write(encodeConnectionError(error));
    this.#transport.close();
  }

  /** Tells a client what became of its claim. */
  pushAnswer(id: ClaimId, answer: Answer): void {
    if (this.#state === "open") this.send(frames.encodePush(id, frames.encodeAnswer(answer, 0)));
  }

  /** Tells a client, at once, that something may have changed for its claim. */
  pushRecheck(id: ClaimId): void {
    if (this.#state !== "open") return;
    this.send(frames.encodeRecheck(id));
    this.flush();
  }

  /** The server is going away: says so and ends. */
  drain(): void {
    if (this.#state === "open") this.send('["drain"]');
    this.flush();
    this.#state = "closed";
    this.#transport.close();
  }

  /** Adds a frame to what is written next. */
  send(frame: string): void {
    if (this.#state === "closed") return;
    if (this.#outputBuffer === "") {
      this.#outputBuffer = frame;
      this.#service.pendingFlush.push(this);
      return;
    }
    this.#outputBuffer += `,${frame}`;
    if (this.#outputBuffer.length > this.#flushThreshold) this.flush();
  }

  /** Writes at once what there is; ends the connection instead if too much waits to be read already. */
  flush(): void {
    if (this.#outputBuffer === "") return;
    const line = `["${this.#service.runId}",${this.#outputBuffer}]\n`;
    this.#outputBuffer = "";
    if (this.#state !== "closed" && (this.#transport.bufferedBytes?.() ?? 0) > this.#service.limits.slowConsumerBytes) {
      return this.disconnect(new ProtocolError("SLOW", "too much waits for a client that does not read"));
    }
    this.#transport.write(line);
  }

  #failWith(error: unknown, isClosedByServer: boolean): void {
    if (this.#state === "closed") return;
    const isProtocolError = error instanceof ProtocolError;
    this.#service.onRefused(isProtocolError ? error.code : "INTERNAL");
    if (!isProtocolError) this.#service.log("a connection failed", error);
    this.flush();
    if (this.#isClosed()) return;
    this.#transport.write(
      encodeConnectionError(isProtocolError ? error : { code: "INTERNAL", message: "the server failed; see its log" }),
    );
    this.#close(isClosedByServer);
    this.#transport.close();
  }

  /** As a call, since flush() may have closed it, which the compiler cannot know. */
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
    if (exceedsDepth(line, this.#service.limits.depth))
      throw new ProtocolError("PROTOCOL", "the first line is too deep");
    const hello = decodeClientHello(line);
    if (hello.probe === true) return this.#answerProbe();
    if (!isId(hello.session))
      throw new ProtocolError("PROTOCOL", "hello: session must be 26 characters of a-z and 2-7");
    try {
      this.#openSession(hello);
    } catch (error) {
      const isRefused = error instanceof ProtocolError && (error.code === "AUTH" || error.code === "LIMIT");
      if (!isRefused) throw error;
      return this.#service.refuseAfterDelay(this, error);
    }
    this.#transport.write(this.#service.encodeHello(this.isLocal));
  }

  #openSession(hello: ClientHello): void {
    if (hello.tether) {
      this.#session = this.#service.attachKeepSession(hello, this);
      this.#state = "tether";
    } else {
      this.#session = this.#service.openSession({ ...hello, label: decodeLabel(hello.label) }, this);
      this.#state = "open";
    }
  }

  /** Somebody only asks who answers here: a server that looks at its own socket. */
  #answerProbe(): void {
    if (!this.isLocal) throw new ProtocolError("UNSUPPORTED", "a probe needs a Unix socket");
    this.#transport.write(this.#service.encodeHello(true));
    this.#close(false);
    this.#transport.close();
  }
}
