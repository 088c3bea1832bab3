/** What src/errors.ts, whose types are those of the contract, uses of Node. None of its code is in the pages. */

declare const process: { emitWarning(warning: string | Error, type: string): void };
