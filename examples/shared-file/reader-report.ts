/** What a process of this example tells when it is done. */
export interface ReaderReport {
  /** Reads that saw more than one version. */
  readonly tornReads: number;
  /** When each of its reads began and ended, in milliseconds of the machine's clock. */
  readonly reads: readonly (readonly [number, number])[];
}
