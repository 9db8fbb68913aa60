// Package kv is the KV cache of one engine: blocks as counts, and with prefix
// caching also as identities with reference counts, content hashes and an
// eviction order; and what the blocks of a prompt contain. It is pure.
package sim
