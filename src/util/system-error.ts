/** The code of an error of the operating system, or of Node, such as "ENOENT"; undefined if it has none. */
export function systemErrorCode(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | null | undefined)?.code;
}
