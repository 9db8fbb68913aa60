package otlp

// This file identifies the process that wrote a span, by the attributes of its resource.

import "github.com/zeebo/xxh3"

// contentHash returns a hash by which contents are compared. It must be equal in all processes, because
// one process may collect spans that another decoded.
func contentHash(b []byte) uint64 { return xxh3.Hash(b) }

// identityKeys are the resource attributes that identify the process that wrote a span. vLLM's
// tracing fork writes none; they are set by the SDK, the environment or the collector
// (spec#wire-resource).
var identityKeys = [...]string{
	"service.name", "service.instance.id", "service.namespace",
	"host.name", "host.id", "process.pid", "k8s.pod.name", "container.id",
}

// identity collects the identifying attributes of a resource.
type identity struct {
	values [len(identityKeys)]string
}

// set stores a value if its key identifies the process.
func (id *identity) set(key string, value []byte) {
	for i, k := range identityKeys {
		if k == key {
			id.values[i] = string(value)
		}
	}
}

// hash returns a number that is equal for resources with the same identifying attributes.
func (id *identity) hash() uint64 {
	var text []byte
	for _, v := range id.values {
		text = append(text, v...)
		text = append(text, 0)
	}
	return contentHash(text)
}

// noIdentity is the hash of a resource that is missing or has no identifying attribute.
var noIdentity = new(identity).hash()
