module deltaq/benches/client-go

go 1.23

require k8s.io/client-go v0.32.0
