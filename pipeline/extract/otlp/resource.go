package otlp

import "github.com/zeebo/xxh3"

// contentHash distinguishes contents. It is the same in every process, because spans that one
// process decoded may be collected by another.
func contentHash(b []byte) uint64 { return xxh3.Hash(b) }

// identityKeys are the resource attributes by which producing processes differ. The tracing fork of
// vLLM writes none of its own; they come from the SDK, the environment or the collector
// (spec#wire-resource).
var identityKeys = [...]string{
	"service.name", "service.instance.id", "service.namespace",
	"host.name", "host.id", "process.pid", "k8s.pod.name", "container.id",
}

// identity collects the identifying attributes of a resource.
type identity struct {
	values [len(identityKeys)]string
}

func (id *identity) set(key string, value []byte) {
	for i, k := range identityKeys {
		if k == key {
			id.values[i] = string(value)
		}
	}
}

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
