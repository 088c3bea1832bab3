/** The operations of a server, as requests. Paths are complete: they include the chroot. */

import { toServerError } from "./errors.ts";
import type { JuteReader, JuteWriter } from "./jute.ts";
import type { Acl, Mode, Stat } from "./records.ts";
import { MODE, OP, OPEN_TO_ALL, readAcl, readStat, writeAcl } from "./records.ts";
import type { Request } from "./requests.ts";

const NO_NODE = -101;
const NO_WATCHER = -121;
const ANY_VERSION = -1;
const WATCHES_OF_ANY_KIND = 3;
const NO_DATA = Buffer.alloc(0);

/** Options of a new node. */
export interface CreateOptions {
  readonly data?: Uint8Array;
  /** Default "persistent". */
  readonly mode?: Mode;
  /** Default: open to all. */
  readonly acl?: readonly Acl[];
}

/** A created node. */
export interface Created {
  /** With its sequence number, if it has one. */
  readonly path: string;
  /** The transaction that created it. */
  readonly czxid: bigint;
}

/** A step of a `multi`: all steps are done, or none. */
export type Step =
  | ({ readonly kind: "create"; readonly path: string } & CreateOptions)
  | { readonly kind: "delete"; readonly path: string }
  | { readonly kind: "set"; readonly path: string; readonly data: Uint8Array };

export function create(path: string, options: CreateOptions): Request<Created> {
  return {
    op: options.mode === "container" ? OP.createContainer : OP.create2,
    description: `create ${path}`,
    encode: (writer) => writeCreate(writer, path, options),
    decode: (reader, czxid) => ({ path: reader.text(), czxid }),
  };
}

export function remove(path: string): Request<void> {
  return {
    op: OP.delete,
    description: `delete ${path}`,
    encode: (writer) => writer.text(path).int(ANY_VERSION),
    decode: () => undefined,
  };
}

/** The node's stat; null: it does not exist. `onSet` is called with whether it exists. */
export function exists(path: string, isWatched: boolean, onSet: (isPresent: boolean) => void): Request<Stat | null> {
  return {
    op: OP.exists,
    description: `check ${path}`,
    encode: (writer) => writer.text(path).bool(isWatched),
    decode(reader) {
      onSet(true);
      return readStat(reader);
    },
    decodeRefusal(code) {
      if (code !== NO_NODE) return null;
      onSet(false);
      return { result: null };
    },
  };
}

export function getData(
  path: string,
  isWatched: boolean,
  onSet: () => void,
): Request<{ readonly data: Buffer; readonly stat: Stat }> {
  return {
    op: OP.getData,
    description: `read ${path}`,
    encode: (writer) => writer.text(path).bool(isWatched),
    decode(reader) {
      onSet();
      return { data: reader.buffer() ?? NO_DATA, stat: readStat(reader) };
    },
  };
}

export function getChildren(
  path: string,
  isWatched: boolean,
  onSet: () => void,
): Request<{ readonly names: readonly string[]; readonly stat: Stat }> {
  return {
    op: OP.getChildren2,
    description: `list ${path}`,
    encode: (writer) => writer.text(path).bool(isWatched),
    decode(reader) {
      onSet();
      return { names: reader.vector((nameReader) => nameReader.text()), stat: readStat(reader) };
    },
  };
}

/** After the answer the server has seen all changes made before the request. */
export function sync(path: string): Request<void> {
  return { op: OP.sync, description: `sync ${path}`, encode: (writer) => writer.text(path), decode: () => undefined };
}

export function getAcl(path: string): Request<readonly Acl[]> {
  return {
    op: OP.getAcl,
    description: `read the ACL of ${path}`,
    encode: (writer) => writer.text(path),
    decode: readAcl,
  };
}

/** Removes all watches of this session on a node at the server. It is not an error if there are none. */
export function removeWatches(path: string): Request<void> {
  return {
    op: OP.removeWatches,
    description: `stop watching ${path}`,
    encode: (writer) => writer.text(path).int(WATCHES_OF_ANY_KIND),
    decode: () => undefined,
    decodeRefusal: (code) => (code === NO_WATCHER ? { result: undefined } : null),
  };
}

/** The identities that the server has authenticated on this session: pairs of scheme and user. */
export function whoAmI(): Request<readonly { readonly scheme: string; readonly user: string }[]> {
  const decode = (reader: JuteReader): { scheme: string; user: string }[] =>
    reader.vector((item) => ({ scheme: item.text(), user: item.text() }));
  return { op: OP.whoAmI, description: "who am I", encode: () => undefined, decode };
}

export function closeSession(): Request<void> {
  return { op: OP.closeSession, description: "close", encode: () => undefined, decode: () => undefined };
}

/** All steps, or none. @throws the error of the step that failed */
export function multi(steps: readonly Step[]): Request<void> {
  return {
    op: OP.multi,
    description: `${steps.length} steps at once`,
    encode(writer) {
      for (const step of steps) writeStep(writer, step);
      writer.int(-1).bool(true).int(-1);
    },
    decode: (reader) => readResults(reader, steps),
  };
}

function writeCreate(writer: JuteWriter, path: string, options: CreateOptions): void {
  const { data = NO_DATA, mode = "persistent", acl = OPEN_TO_ALL } = options;
  writer.text(path).buffer(data);
  writeAcl(writer, acl);
  writer.int(MODE[mode]);
}

function writeStep(writer: JuteWriter, step: Step): void {
  const writeHeader = (op: number): JuteWriter => writer.int(op).bool(false).int(-1);
  switch (step.kind) {
    case "create":
      writeHeader(step.mode === "container" ? OP.createContainer : OP.create);
      return writeCreate(writer, step.path, step);
    case "delete":
      writeHeader(OP.delete).text(step.path).int(ANY_VERSION);
      return;
    case "set":
      writeHeader(OP.setData).text(step.path).buffer(step.data).int(ANY_VERSION);
  }
}

/** @throws the error of the step that failed: the other steps have only "not done because of it" */
function readResults(reader: JuteReader, steps: readonly Step[]): void {
  let failure: Error | null = null;
  for (let index = 0; ; index++) {
    const [op, isEnd] = [reader.int(), reader.bool()];
    reader.int();
    if (isEnd) break;
    if (op === OP.create || op === OP.createContainer) reader.text();
    if (op === OP.createContainer || op === OP.setData) readStat(reader);
    if (op !== -1) continue;
    const code = reader.int();
    const step = steps[index];
    // 0: would have succeeded; -2: not attempted
    if (code !== 0 && code !== -2) failure ??= toServerError(code, `${step?.kind ?? "step"} ${step?.path ?? ""}`);
  }
  if (failure !== null) throw failure;
}
