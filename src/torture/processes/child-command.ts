/** How a child process of this command is started: the program and its first arguments. */
export type ChildCommand = readonly [string, ...string[]];
