// A server, its disk and its clients without sockets or real time: crashes and waits of a minute take no time.

import type { Clock, Timer } from "../../src/clock.ts";
import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import type { Dial, WireEvents } from "../../src/drivers/server/wire.ts";
import type { Access } from "../../src/server/access.ts";
import { OPEN } from "../../src/server/access.ts";
import type { Disk, Found, JournalRecord, SavedSession, SavedState } from "../../src/server/disk.ts";
import { Hub } from "../../src/server/hub.ts";
import { recordOf, recordText, stateOf, stateText } from "../../src/server/journal.ts";
import type { ServerLimits } from "../../src/server/limits.ts";
import { limitsFrom } from "../../src/server/limits.ts";
import type { Link } from "../../src/server/link.ts";
import type { Opened as Kept } from "../../src/server/opening.ts";
import { openKeeper } from "../../src/server/opening.ts";
import { Record } from "../../src/server/record.ts";
import type { Runs } from "../../src/server/run-life.ts";
import { NO_RUNS } from "../../src/server/run-life.ts";
import type { ProcessState } from "../../src/server/session.ts";
import type { Facts } from "../../src/server/tools.ts";
import { createTools } from "../../src/server/tools.ts";
import type { Answer, ClaimId, Driver } from "../../src/spi/driver.ts";
import { later } from "./support.ts";

/** A clock that moves when told to. */
export class FakeClock implements Clock {
  #now = 1_000;
  wallAhead = 1_800_000_000_000;
  /** Timers that have rung. */
  rings = 0;
  readonly #timers = new Set<{ due: number | null; run: () => void }>();

  now(): number {
    return this.#now;
  }
  wall(): number {
    return this.wallAhead + this.#now;
  }
  uptime(): number {
    return this.#now;
  }
  timer(run: () => void): Timer {
    const timer = { due: null as number | null, run };
    const set = (due: number | null): void => {
      timer.due = due;
      if (due === null) this.#timers.delete(timer);
      else this.#timers.add(timer);
    };
    return { set, keepAlive: () => undefined, stop: () => set(null) };
  }

  /** Time has passed, and no timer has rung yet. */
  leap(ms: number): void {
    this.#now += ms;
  }

  /** Lets time pass, from one due timer to the next, and all that follows from each. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    await turns();
    for (;;) {
      let next: { due: number | null; run: () => void } | null = null;
      for (const timer of this.#timers) {
        if (timer.due !== null && timer.due <= end && (next === null || timer.due < (next.due as number))) next = timer;
      }
      if (next === null) break;
      this.#now = Math.max(this.#now, next.due as number);
      next.due = null;
      this.#timers.delete(next);
      this.rings++;
      next.run();
      await turns();
    }
    this.#now = Math.max(this.#now, end);
  }
}

/** Enough turns of the event loop for calls and answers to pass between clients, server and disk. */
export async function turns(count = 12): Promise<void> {
  for (let turn = 0; turn < count; turn++) {
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** Of a server that has crashed. */
const never = new Promise<never>(() => undefined);

const textOf = (records: readonly JournalRecord[]): string => records.map((one) => `${recordText(one)}\n`).join("");

/** A disk that keeps texts, as the real one does. */
export class FakeDisk implements Disk {
  state: string | null = null;
  journal = "";
  sessions: SavedSession[] | null = null;
  fresh = true;
  sameBoot = true;
  /** Every write fails; "journal": those of the journal, which is longer. */
  full: boolean | "journal" = false;
  /** Writes settle only when this does. */
  gate: Promise<void> = Promise.resolve();
  readonly writes: string[] = [];
  /** Two writes of the same file were under way at a time. */
  overlapped = false;
  readonly #under = new Set<string>();
  #starts = 0;

  /** Nothing is written from now on, until what is given back is called. */
  hang(): () => void {
    let open = (): void => undefined;
    this.gate = new Promise((resolve) => {
      open = resolve;
    });
    return open;
  }

  async load(): Promise<Found> {
    return {
      state: this.state === null ? null : stateOf(this.state, "state").saved,
      fresh: this.fresh,
      journal: this.journal.split("\n").slice(0, -1).map(recordOf),
      sessions: this.sessions,
      sameBoot: this.sameBoot,
    };
  }
  async begin({ state, journal, sessions }: Parameters<Disk["begin"]>[0]): Promise<void> {
    this.sessions = [...sessions];
    await this.rewrite(journal);
    await this.save(state);
  }
  async save(state: SavedState): Promise<void> {
    await this.#write("save");
    this.fresh = false;
    this.state = stateText(state, null);
  }
  async append(records: readonly JournalRecord[]): Promise<void> {
    await this.#write("append");
    this.journal += textOf(records);
  }
  async rewrite(records: readonly JournalRecord[]): Promise<void> {
    await this.#write("rewrite");
    this.journal = textOf(records);
  }
  note(session: SavedSession): void {
    this.sessions = [...(this.sessions ?? []).filter(({ id }) => id !== session.id), session];
  }
  unnote(gone: string): void {
    this.sessions = (this.sessions ?? []).filter(({ id }) => id !== gone);
  }
  async close(): Promise<void> {
    // nothing is open
  }

  /** For one run of the server: when it has crashed, nothing that it has not written yet ever will be. */
  opened(): Disk {
    const start = this.#starts;
    const alive = <T>(write: () => T): T | Promise<never> => (start === this.#starts ? write() : never);
    return {
      load: () => this.load(),
      begin: (start) => alive(() => this.begin(start)),
      save: (state) => alive(() => this.save(state)),
      append: (records) => alive(() => this.append(records)),
      rewrite: (records) => alive(() => this.rewrite(records)),
      note: (session) => void alive(() => this.note(session)),
      unnote: (id) => void alive(() => this.unnote(id)),
      close: () => this.close(),
    };
  }

  crashed(): void {
    this.#starts++;
    this.#under.clear();
  }

  async #write(what: string): Promise<void> {
    this.writes.push(what);
    const [file, start] = [what === "save" ? "state" : "journal", this.#starts];
    if (this.#under.has(file)) this.overlapped = true;
    this.#under.add(file);
    await this.gate;
    if (start !== this.#starts) await never;
    this.#under.delete(file);
    if (this.full === true || (this.full === "journal" && what !== "save"))
      throw Object.assign(new Error("no space"), { code: "ENOSPC" });
  }
}

export interface Player {
  readonly driver: Driver;
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** What the server says of its process, if it asks. */
  process: ProcessState;
  /** Ends its connection as its death would. */
  cut(): void;
  /** While true it cannot connect. */
  unreachable: boolean;
  /** While true what is sent either way is lost, and nobody is told. */
  blackHole: boolean;
  /** Lines it has sent, and how often it has dialled. */
  sent: number;
  dials: number;
}

interface Pipe {
  readonly link: Link;
  readonly events: WireEvents;
  readonly player: { pipes: Set<Pipe> };
  open: boolean;
}

export class World {
  readonly clock: FakeClock = new FakeClock();
  readonly disk: FakeDisk | null;
  readonly logged: string[] = [];
  readonly remote: boolean;
  readonly access: Access;
  limits: ServerLimits;
  /** Runs that outlive their wrappers. */
  runs: Runs = NO_RUNS;
  kept: Kept | null = null;
  hub: Hub | null = null;
  record: Record | null = null;
  starts = 0;
  /** By how much the server's wall clock is ahead of its clients'. */
  serverAheadMs = 0;
  readonly #pipes = new Set<Pipe>();
  readonly #states = new Map<string, () => ProcessState>();

  constructor(
    options: {
      readonly state?: "none";
      readonly remote?: boolean;
      readonly access?: Access;
      readonly limits?: Partial<ServerLimits>;
    } = {},
  ) {
    this.access = options.access ?? OPEN;
    this.limits = limitsFrom(options.limits);
    this.disk = options.state === "none" ? null : new FakeDisk();
    this.remote = options.remote ?? false;
  }

  async start(): Promise<void> {
    const { remote, access, limits } = this;
    const clock: Clock = {
      now: () => this.clock.now(),
      wall: () => this.clock.wall() + this.serverAheadMs,
      uptime: () => this.clock.uptime(),
      timer: (run) => this.clock.timer(run),
    };
    const disk = this.disk?.opened() ?? null;
    const log = (message: string, error?: unknown): void => {
      this.logged.push(`${message} ${error}`);
    };
    // every process here has our pid; which one is meant stands in its start time
    const probe = (_pid: number, pidStart: string): ProcessState => this.#states.get(pidStart)?.() ?? "running";
    const record = new Record({ clock, mostSubscribers: limits.subscribers });
    this.record = record;
    this.kept = await openKeeper({
      clock,
      disk,
      sessionMs: 30_000,
      remote,
      probe,
      log,
      limits,
      record,
      runs: this.runs,
    });
    const { keeper: backend, sessions } = this.kept;
    const start = `start${++this.starts}`;
    const tools = createTools({ record, facts: () => factsOf(start, clock) });
    this.hub = new Hub({ backend, sessions, clock, start, version: "0", log, access, limits, tools });
  }

  /** The server's process is gone from one moment to the next. */
  crash(): void {
    this.disk?.crashed();
    this.hub = null;
    this.kept = null;
    this.#endAll();
  }

  /** A clean shutdown. */
  async stop(): Promise<void> {
    this.hub?.drain();
    await turns(2);
    this.kept?.keeper.drain();
    await this.kept?.save();
    this.crash();
  }

  async client(local = true, credential?: string): Promise<Player> {
    const pipes = new Set<Pipe>();
    const player: Omit<Player, "driver"> & { driver?: Driver; pipes: Set<Pipe> } = {
      pushes: [],
      process: "running",
      unreachable: false,
      blackHole: false,
      sent: 0,
      dials: 0,
      pipes,
      cut: () => {
        for (const pipe of pipes) this.#end(pipe);
      },
    };
    const dial = this.#dial(player, local);
    const driver = serverDriver({
      dial,
      clock: this.clock,
      random: () => 0.5,
      ...(credential !== undefined && { credential }),
    });
    player.driver = driver;
    const opened = driver.open((id, answer) => player.pushes.push({ id, answer }));
    await turns();
    await opened;
    later(() => driver.close());
    return player as unknown as Player;
  }

  #dial(
    player: {
      pipes: Set<Pipe>;
      readonly unreachable: boolean;
      readonly blackHole: boolean;
      sent: number;
      dials: number;
      readonly process: ProcessState;
    },
    local: boolean,
  ): Dial {
    return (events) => {
      player.dials++;
      const hub = this.hub;
      if (hub === null || player.unreachable) {
        setImmediate(() => events.closed(new Error("nobody listens")));
        return { write: () => undefined, close: () => undefined, keepAlive: () => undefined };
      }
      const stream = {
        write: (text: string) => {
          setImmediate(() => {
            if (pipe.open && !player.blackHole) events.lines(text.trimEnd().split("\n"));
          });
        },
        close: () => {
          setImmediate(() => this.#end(pipe));
        },
      };
      const pipe: Pipe = {
        link: hub.accept(stream, { local, address: local ? "" : "127.0.0.1" }),
        events,
        player,
        open: true,
      };
      this.#pipes.add(pipe);
      player.pipes.add(pipe);
      return {
        write: (text) => {
          player.sent++;
          // the hello tells which process it is; here each player is one
          const hello = /"session":"([a-z2-7]+)","pid":(\d+|null),"pidStart":("\d+"|null)/.exec(text);
          const known = hello === null ? text : text.replace(hello[3] as string, `"${startOf(hello[1] as string)}"`);
          if (hello !== null) this.#states.set(startOf(hello[1] as string), () => player.process);
          setImmediate(() => {
            if (pipe.open && this.hub === hub && !player.blackHole) pipe.link.lines(known.trimEnd().split("\n"));
          });
        },
        close: () => {
          pipe.open = false;
          this.#pipes.delete(pipe);
          if (this.hub === hub) setImmediate(() => pipe.link.ended());
        },
        keepAlive: () => undefined,
      };
    };
  }

  #end(pipe: Pipe): void {
    if (!pipe.open) return;
    pipe.open = false;
    this.#pipes.delete(pipe);
    pipe.player.pipes.delete(pipe);
    if (this.hub !== null) pipe.link.ended();
    setImmediate(() => pipe.events.closed(new Error("cut")));
  }

  #endAll(): void {
    for (const pipe of [...this.#pipes]) this.#end(pipe);
  }
}

function factsOf(start: string, clock: Clock): Facts {
  const load = { connections: 0, sessions: 0, held: 0, waiting: 0 };
  return {
    version: "0",
    protocol: 1,
    start,
    upMs: 0,
    wallMs: clock.wall(),
    reclaimMs: 0,
    why: "",
    store: "table",
    load,
  };
}

/** A start time that stands for a session. */
function startOf(session: string): string {
  return String([...session].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 1_000_000_007, 7));
}
