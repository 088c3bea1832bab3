/**
 * Answers the calls of one connection: frames in, replies out as each becomes ready. Frames are handled in order, and
 * large ones in parts, so that the caller can stop between two parts and serve other connections.
 *
 * A claim passes five stops:
 *   net/socket-transport.ts    bytes to lines
 *   connection.ts              lines to frames; runUntil() is one batch, from beginBatch() to endBatch()
 *   here                       decode (decode-request.ts), authorize (session/authorized-calls.ts), call the backend,
 *                              encode the reply
 *   local/local-backend.ts     claim(): quotas, WriteAhead.reserve(), the table, the owner, WriteAhead.persist()
 *   lock-table/table.ts        queues, admission, token, event
 */

import type { ReclaimItem } from "../../protocol/frames.ts";
import * as frames from "../../protocol/frames.ts";
import { PROTOCOL_LIMITS, ProtocolError } from "../../protocol/handshake.ts";
import type { Answer, ClaimId, ClaimView, ListQuery, Page } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { MaybePromise } from "../../util/maybe-promise.ts";
import type { ServerLimits } from "../limits.ts";
import type { Logger } from "../logger.ts";
import { INTERNAL_FAILURE, RequestError } from "../request-error.ts";
import type { BackendControl, ClientCalls, ReleaseRequest } from "../session/backend.ts";
import type { Session } from "../session/session.ts";
import type { AdminHandler, Caller } from "./admin-handler.ts";
import * as decode from "./decode-request.ts";

type AnswersResult = MaybePromise<readonly (Answer | undefined)[]>;
type FlagsResult = MaybePromise<readonly boolean[]>;

/** Items of one frame handled at a time: each may have as many keys as a claim may have. */
const ITEMS_PER_PART = 64;
/** The same for a reclaim: each item may conflict with all holders of its keys. */
const RECLAIMS_PER_PART = 1;
/**
 * The most `list` frames in one line, and without a reply: each may search all claims, and waits its turn in memory. A
 * client that reads pages asks for one at a time.
 */
const MAX_LISTS = 16;
const NO_FRAMES: readonly unknown[] = [];
const ignore = (): void => undefined;

/** What a request needs of the server (service.ts). */
export interface RequestService {
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits: ServerLimits;
  readonly backend: BackendControl;
  readonly calls: ClientCalls;
  readonly adminHandler: AdminHandler;
  /** Called with the error code of each refused call and connection. */
  readonly onRefused: (code: string) => void;
  /** After a batch of calls. */
  endBatch(): void;
}

/** The connection that the replies go to. */
interface ReplyChannel extends Caller {
  /** Of a client that is a part of the server. */
  readonly isInProcess: boolean;
  /** True while its calls are answered. */
  readonly isOpen: boolean;
}

export class RequestHandler {
  readonly #service: RequestService;
  readonly #connection: ReplyChannel;
  /** `list` frames in the current line. */
  #listsInLine = 0;
  /** `list` frames without a reply yet. */
  #pendingLists = 0;
  /** The line being answered, and the index of its next frame. */
  #frames = NO_FRAMES;
  #nextFrame = 0;
  /** Handles the next part of a large frame; null if none is in progress. */
  #resumeFrame: (() => void) | null = null;

  constructor(service: RequestService, connection: ReplyChannel) {
    this.#service = service;
    this.#connection = connection;
  }

  /**
   * Accepts the frames of a line, without its run id, for processFrames().
   * @throws ProtocolError if there are too many
   */
  handleLine(lineFrames: readonly unknown[]): void {
    this.#listsInLine = 0;
    const { framesPerLine } = PROTOCOL_LIMITS;
    if (lineFrames.length - 1 > framesPerLine) {
      throw new ProtocolError("LIMIT", `a line has at most ${framesPerLine} frames`);
    }
    this.#frames = lineFrames;
    this.#nextFrame = 1;
  }

  /** True while frames of a line are unanswered. */
  get isBusy(): boolean {
    return this.#resumeFrame !== null || this.#nextFrame < this.#frames.length;
  }

  /**
   * Handles frames until all are answered or the deadline has passed.
   * @throws ProtocolError at the first malformed frame
   */
  processFrames(session: Session, deadline: number): void {
    while (this.isBusy) {
      if (!this.#connection.isOpen) return this.#discardRest();
      this.#processNext(session);
      if (this.isBusy && this.#service.clock.now() >= deadline) return;
    }
    this.#frames = NO_FRAMES;
  }

  #discardRest(): void {
    this.#frames = NO_FRAMES;
    this.#resumeFrame = null;
  }

  #processNext(session: Session): void {
    const frame = this.#frames[this.#resumeFrame === null ? this.#nextFrame++ : this.#nextFrame - 1];
    if (!Array.isArray(frame)) throw new ProtocolError("PROTOCOL", "a frame must be an array");
    try {
      if (this.#resumeFrame === null) this.#handleFrame(session, frame as readonly unknown[]);
      else this.#resumeFrame();
    } catch (error) {
      this.#resumeFrame = null;
      if (error instanceof ProtocolError) throw error;
      // the error concerns only this call
      this.#connection.send(this.#encodeError(frame[1] as number, error));
    }
  }

  #handleFrame(session: Session, frame: readonly unknown[]): void {
    const verb = frame[0];
    const n = decode.decodeCallNumber(frame[1]);
    const { calls, limits } = this.#service;
    switch (verb) {
      case "claim": {
        const claim = decode.decodeClaim(frame, 2, session.label, limits);
        const answer = calls.claim(session, claim);
        if (answer instanceof Promise)
          return this.#replyWhenSettled(n, answer, (lateAnswer) => this.#encodeAnswer(claim.id, lateAnswer));
        return this.#connection.send(frames.encodeOk(n, this.#encodeAnswer(claim.id, answer)));
      }
      case "renew": {
        const items = decode.decodeRenew(frame[2], frame[3], session.label, limits);
        const call = (part: typeof items): AnswersResult => calls.renew(session, part);
        return this.#handleInParts(n, items, ITEMS_PER_PART, call, (answers) => this.#encodeAnswers(items, answers));
      }
      case "release": {
        const call = (part: ReleaseRequest[]): FlagsResult => calls.release(session, part);
        return this.#handleInParts(n, decode.decodeRelease(frame[2], limits), ITEMS_PER_PART, call, frames.encodeFlags);
      }
      case "detach": {
        const remainingMs = decode.decodeRemainingMs(frame[3]);
        const call = (part: ClaimId[]): FlagsResult => calls.detach(session, part, remainingMs);
        return this.#handleInParts(n, decode.decodeIds(frame[2]), ITEMS_PER_PART, call, frames.encodeFlags);
      }
      case "suspend": {
        const ids = decode.decodeIds(frame[2]);
        calls.setSuspended(session, ids, decode.decodeSwitch(frame[3]));
        return this.#connection.send(frames.encodeOk(n, "[]"));
      }
      case "revoke":
        return this.#reply(n, calls.revoke(session, decode.decodeRevoke(frame[2])), frames.encodeFlags);
      case "list": {
        const [filter, max, cursor] = decode.decodeListQuery(frame[2], frame[3], frame[4]);
        return this.#reply(n, this.#list(session, filter, max, cursor), encodePage);
      }
      case "reclaim": {
        const items = decode.decodeReclaim(frame[2], session.label, limits);
        const ids = items.map(({ claim }) => claim);
        const call = this.#createReclaimCall(session, frame[3] !== false);
        return this.#handleInParts(n, items, RECLAIMS_PER_PART, call, (answers) => this.#encodeAnswers(ids, answers));
      }
      case "ping":
        return this.#connection.send(frames.encodeOk(n, "[]"));
      default:
        if (this.#service.adminHandler.handleFrame(this.#connection, verb, n, frame)) return;
        throw new ProtocolError("PROTOCOL", "unknown frame");
    }
  }

  /** Answers a frame after all parts of its items were handled. */
  #handleInParts<T, R>(
    n: number,
    items: T[],
    size: number,
    call: (part: T[], isLast: boolean) => MaybePromise<readonly R[]>,
    encode: (results: readonly R[]) => string,
  ): void {
    if (items.length <= size) return this.#reply(n, call(items, true), encode);
    const results: MaybePromise<readonly R[]>[] = [];
    let nextItem = 0;
    this.#resumeFrame = () => {
      const part = items.slice(nextItem, nextItem + size);
      nextItem += size;
      const result = call(part, nextItem >= items.length);
      // it may reject before a handler is attached
      if (result instanceof Promise) result.catch(ignore);
      results.push(result);
      if (nextItem < items.length) return;
      this.#resumeFrame = null;
      this.#reply(n, mergeResults(results), encode);
    };
  }

  /** The last part ends the session's recovery, after all its claims were reclaimed. */
  #createReclaimCall(session: Session, isLastFrame: boolean): (part: ReclaimItem[], isLast: boolean) => AnswersResult {
    const { calls } = this.#service;
    const writes: Promise<unknown>[] = [];
    const reclaim = (part: ReclaimItem[], isAll: boolean): AnswersResult => {
      const finish = <T>(answers: T): T => {
        if (isAll) session.markReclaimed();
        return answers;
      };
      const answers = calls.reclaim(session, part, isAll);
      return answers instanceof Promise ? answers.then(finish) : finish(answers);
    };
    return (part, isLast) => {
      if (isLast && writes.length > 0) return Promise.all(writes).then(() => reclaim(part, isLastFrame));
      const answers = reclaim(part, isLast && isLastFrame);
      if (answers instanceof Promise) writes.push(answers);
      return answers;
    };
  }

  #list(session: Session, filter: ListQuery, max: number, cursor: string | undefined): MaybePromise<Page<ClaimView>> {
    // a part of the server asks for many clients, whose connections are limited
    const isLimited = !this.#connection.isInProcess;
    if (isLimited && (++this.#listsInLine > MAX_LISTS || this.#pendingLists >= MAX_LISTS))
      throw new RequestError("LIMIT", `at most ${MAX_LISTS} lists at a time`);
    const page = this.#service.calls.list(session, filter, max, cursor);
    if (!(page instanceof Promise)) return page;
    this.#pendingLists++;
    return page.finally(() => {
      this.#pendingLists--;
    });
  }

  /** Replies at once if the result is available, else as soon as it is. */
  #reply<T>(n: number, result: MaybePromise<T>, encode: (result: T) => string): void {
    if (result instanceof Promise) this.#replyWhenSettled(n, result, encode);
    else this.#connection.send(frames.encodeOk(n, encode(result)));
  }

  #replyWhenSettled<T>(n: number, result: Promise<T>, encode: (result: T) => string): void {
    const connection = this.#connection;
    result.then(
      (settled) => {
        connection.send(frames.encodeOk(n, encode(settled)));
        this.#service.endBatch();
      },
      (error: unknown) => {
        connection.send(this.#encodeError(n, error));
        this.#service.endBatch();
      },
    );
  }

  #encodeError(n: number, error: unknown): string {
    const failure = error instanceof RequestError ? error : INTERNAL_FAILURE;
    this.#service.onRefused(failure.code);
    if (failure === INTERNAL_FAILURE) this.#service.log("a call failed", error);
    return frames.encodeError(n, failure.code, failure.message);
  }

  #encodeAnswer(id: ClaimId, answer: Answer): string {
    return frames.encodeAnswer(answer, answer.state === "waiting" ? this.#service.backend.arrivalOf(id) : 0);
  }

  #encodeAnswers(claims: readonly { readonly id: ClaimId }[], answers: readonly (Answer | undefined)[]): string {
    let text = "";
    for (const [index, answer] of answers.entries()) {
      if (index > 0) text += ",";
      text += answer === undefined ? "null" : this.#encodeAnswer((claims[index] as { id: ClaimId }).id, answer);
    }
    return `[${text}]`;
  }
}

/** Merges the results of all parts as if the frame had been handled as one. */
function mergeResults<R>(results: readonly MaybePromise<readonly R[]>[]): MaybePromise<readonly R[]> {
  if (results.some((result) => result instanceof Promise)) {
    return Promise.all(results.map((result) => Promise.resolve(result))).then((parts) => parts.flat());
  }
  return (results as (readonly R[])[]).flat();
}

function encodePage({ items, next }: Page<ClaimView>): string {
  return `[[${items.map(frames.encodeView).join()}],${next !== undefined}]`;
}
