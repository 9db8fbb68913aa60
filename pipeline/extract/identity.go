package extract

import "hash/maphash"

// identityKeys are the resource attributes that tell one producing process
// from another. The fork writes none of its own; these come from the SDK, the
// environment or the collector.
var identityKeys = [...]string{
	"service.name", "service.instance.id", "service.namespace", "host.name", "host.id", "process.pid", "k8s.pod.name", "container.id",
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
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, v := range id.values {
		h.WriteString(v)
		h.WriteByte(0)
	}
	return h.Sum64()
}

// noIdentity is the hash of a resource that names nothing, or is missing.
var noIdentity = new(identity).hash()
