"""Agreement: who holds, who leads, who does what, who is there. Built on leases that end by themselves."""
