/** Messages on stderr while a command works. */

import { info } from "./output.ts";

/** Prints messages as far as --quiet, --verbose and --json allow. */
export interface Reporter {
  /** For the user at the terminal. Not printed with --quiet, nor with --json unless --verbose is given, too. */
  info(sentence: string): void;
  /** Printed only with --verbose. */
  debug(sentence: string): void;
}

/** The reporter for these flags. */
export function createReporter(flags: {
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}): Reporter {
  const ignore = (): void => undefined;
  const isMuted = flags.quiet === true || (flags.json === true && flags.verbose !== true);
  return { info: isMuted ? ignore : info, debug: flags.verbose === true && flags.quiet !== true ? info : ignore };
}
