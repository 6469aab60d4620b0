/** Recordings are typed where they are read; their inferred types would be as large as the files. */
declare module "*.json" {
  const value: unknown;
  export default value;
}
