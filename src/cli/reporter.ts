/** What a command tells people on stderr while it works. */

import { info } from "./output.ts";

/** How much a command says of itself. */
export interface Reporter {
  /** What a person at the terminal wants to know. Not with --quiet or --json. */
  info(sentence: string): void;
  /** What only --verbose shows. */
  debug(sentence: string): void;
}

/** The voice of these flags. */
export function createReporter(flags: {
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}): Reporter {
  const ignore = (): void => undefined;
  const isMuted = flags.quiet === true || (flags.json === true && flags.verbose !== true);
  return { info: isMuted ? ignore : info, debug: flags.verbose === true && flags.quiet !== true ? info : ignore };
}
