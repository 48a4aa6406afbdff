module example.com/deltaq/clients/go

go 1.23
