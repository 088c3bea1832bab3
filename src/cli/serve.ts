/** `holdfast serve`: a lock server in this process, until a signal ends it or nobody needs it any more. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { elect } from "../server/election.ts";
import type { Log } from "../server/logging.ts";
import type { Fault, ServeOptions, Server } from "../server/serve.ts";
import { checkDirectory, preparedSocketPath, socketPath, userDirectory } from "../user-directory.ts";
import { CommandError } from "./failure.ts";
import { jsonLine, print, visible } from "./output.ts";
import { durationOf } from "./run-options.ts";
import { untilOver } from "./serve-end.ts";
import { logOf } from "./serve-log.ts";
import type { Wanted } from "./serve-options.ts";
import { complaintsOf, wantedOf } from "./serve-options.ts";
import type { Complaint, FlagValues, Gathered } from "./serve-settings.ts";
import { gather } from "./serve-settings.ts";
import { InterruptedError } from "./signals.ts";
import { warnBy } from "./warnings.ts";

/** Saving the state and telling the clients may take so long. */
const DRAIN_MS = 10_000;

/**
 * Serves until SIGTERM or SIGINT, or idleness. Without --listen on this user's own socket.
 * @throws CommandError usage or config with all that is wrong; unreachable if an address or the state cannot be had
 */
export async function serveCommand(flags: FlagValues): Promise<number> {
  if (flags.onDemand === true) {
    const { serveOnDemand } = await import("./serve-on-demand.ts");
    return serveOnDemand(typeof flags.idle === "string" ? durationOf(flags.idle, "--idle") : undefined);
  }
  const gathered = gather(flags, process.env);
  const wanted = await wantedOf(gathered.given, gathered.complaints);
  const log = logOf(wanted.logFormat, wanted.logLevel);
  warnBy((warning) => log(warning, undefined, { level: "warn" }));
  if (flags.check === true || gathered.complaints.length > 0) {
    for (const warning of await checked(wanted, gathered)) log(warning, undefined, { level: "warn" });
    print("all is well");
    return 0;
  }
  const own = wanted.own.socket ? await ownPlace() : null;
  const server = await opened(wanted, own, gathered, log);
  // before anybody is told where we are: who knows may send a signal
  const over = untilOver(server, { idleMs: wanted.idleMs, hangup: "reloads", log });
  announce(server, flags.json === true);
  const { why, lost, hangup } = await over;
  log(`stopping: ${why}`);
  // what was left unsaved then stands in the log
  if (lost) {
    await Promise.allSettled([server.close()]);
    throw new CommandError("unreachable", why);
  }
  await closed(server);
  if (hangup) throw new InterruptedError("SIGHUP");
  return 0;
}

/** Settles when the server has stopped. @throws CommandError if its state was not saved, or may not be */
async function closed(server: Server): Promise<void> {
  const late = delay(DRAIN_MS, "late", { ref: false });
  const stopped = server.close().catch((error: Error) => {
    throw new CommandError("output", error.message, { cause: error });
  });
  if ((await Promise.race([stopped, late])) !== "late") return;
  throw new CommandError("internal", `stopping took more than ${DRAIN_MS / 1_000} s: the state may not be saved`);
}

/** Everything that could be wrong. @throws CommandError with all of it */
async function checked(wanted: Wanted, { given, complaints }: Gathered): Promise<readonly string[]> {
  const { checkOptions } = await import("../server/serve.ts");
  const { faults, warnings } = await checkOptions({ ...wanted.serve, ...placeFor(wanted) } as ServeOptions);
  // the folder of our own socket is made if need be
  const isOurs = ({ option, named }: Fault): boolean => wanted.own.socket && option === "listen" && named;
  fail([
    ...complaints,
    ...complaintsOf(
      given,
      faults.filter((fault) => !isOurs(fault)),
    ),
  ]);
  return warnings;
}

/** Wrong words on the command line are wrong usage, all else is a wrong configuration. */
function fail(complaints: readonly Complaint[]): void {
  if (complaints.length === 0) return;
  const lines = complaints.map(({ where, message }) => `${where}: ${message}`);
  const details = { errors: complaints.map(({ where, message }) => ({ where, message })) };
  const why = complaints.every(({ usage }) => usage) ? "usage" : "config";
  throw new CommandError(why, lines.map(visible).join("\n"), { details });
}

/** Where a server of this user's own would be; makes nothing. */
function placeFor({ own, serve }: Wanted): Pick<ServeOptions, "listen" | "state"> {
  const directory = userDirectory();
  return {
    listen: own.socket ? `unix:${socketPath(directory)}` : serve.listen,
    ...(own.state && { state: stateIn(directory, own.socket) }),
  };
}

function stateIn(directory: string, isOwn: boolean): string {
  return join(directory, isOwn ? "state" : "serve");
}

async function opened(
  { serve: options, own }: Wanted,
  place: { readonly socket: string; readonly directory: string } | null,
  { given }: Gathered,
  log: Log,
): Promise<Server> {
  const listen = place === null ? options.listen : `unix:${place.socket}`;
  const state = own.state ? { state: place === null ? defaultState() : stateIn(place.directory, true) } : {};
  const whole = { ...options, ...state, listen, log };
  const { serve } = await import("../server/serve.ts");
  try {
    return await serve(whole);
  } catch (error) {
    const { faults } = error as { readonly faults?: readonly Fault[] };
    if (faults !== undefined) fail(complaintsOf(given, faults));
    throw new CommandError("unreachable", `the server could not be started: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** The user's own socket and directory, if no server has them: then they are ours as long as this process lives. */
async function ownPlace(): Promise<{ readonly socket: string; readonly directory: string }> {
  const directory = userDirectory();
  const socket = preparedSocketPath(directory);
  // never closed: the lock ends with the process
  if ((await elect(join(directory, "election"))) === null) {
    throw new CommandError(
      "unreachable",
      `your lock server is running already (in ${directory}): add --listen tcp://127.0.0.1:7420, or another address, to run one of its own beside it; clients then name it, as by --url holdfast://127.0.0.1:7420`,
    );
  }
  return { socket, directory };
}

function defaultState(): string {
  const directory = userDirectory();
  preparedSocketPath(directory);
  checkDirectory(directory);
  return stateIn(directory, false);
}

function announce({ addresses, httpAddress, start, reclaimMs }: Server, json: boolean): void {
  if (json) {
    const http = httpAddress === null ? {} : { http: httpAddress };
    return print(jsonLine({ listening: addresses, ...http, start, reclaimMs }));
  }
  const lines = addresses.map((address) => `listening on ${address}`);
  // at once: who waits for the first line knows everything
  print([...lines, ...(httpAddress === null ? [] : [`HTTP on ${httpAddress}`])].join("\n"));
}
